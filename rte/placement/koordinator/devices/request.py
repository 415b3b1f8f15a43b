"""What a pod asks of DeviceShare: resources and the annotations beside them.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/utils.go`` and ``devicehandler_gpu.go``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from rte import errors
from rte.k8s import selectors, wire
from rte.model import quantity
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
GPU_RESOURCE = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA_RESOURCE = "koordinator.sh/rdma"
FPGA_RESOURCE = "koordinator.sh/fpga"
#: Whole GPUs under the names of the vendors' device plugins.
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")

#: What Koordinator calls them in its messages.
_ANNOTATED = {
    ALLOCATE_HINT: "DeviceAllocateHint",
    JOINT_ALLOCATE: "DeviceJointAllocate",
    GPU_PARTITION_SPEC: "GPUPartitionSpec",
}

SAME_PCIE = "SamePCIe"
APPLY_FOR_ALL = "ApplyForAll"
REQUESTS_AS_COUNT = "RequestsAsCount"
DEVICE_LEVEL = "DeviceLevel"

#: Device type -> the resources by which it is asked for.
_NAMES = {
    GPU: (*WHOLE_GPUS, GPU_RESOURCE, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO),
    RDMA: (RDMA_RESOURCE,),
    FPGA: (FPGA_RESOURCE,),
}
_PERCENTAGES = (GPU_RESOURCE, RDMA_RESOURCE, FPGA_RESOURCE)
#: Mixtures of GPU resources that mean something.
_GPU_MIXTURES = (
    *({name} for name in (*WHOLE_GPUS, GPU_RESOURCE)),
    *(
        {*extra, memory}
        for extra in ((), (GPU_CORE,), (GPU_SHARED,), (GPU_SHARED, GPU_CORE))
        for memory in (GPU_MEMORY, GPU_MEMORY_RATIO)
    ),
)

Amounts: TypeAlias = "Mapping[str, int]"
_T = TypeVar("_T")


class DeviceRequestError(errors.RteError):
    """No node can honour the request; the text is Koordinator's."""


class DeviceHint(msgspec.Struct, frozen=True, rename="camel"):
    """How devices of one type are to be chosen; a selector is None where there is none."""

    selector: wire.LabelSelector | None = None
    vf_selector: wire.LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _Joint(msgspec.Struct, frozen=True, rename="camel"):
    """Types of devices to be chosen together."""

    device_types: tuple[str, ...] | None = None
    required_scope: str = ""


class PartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The GPUs are to be a partition; policy ``Restricted``: one of the best score only."""

    allocate_policy: str = ""
    ring_bus_bandwidth: str | int | None = None

    def least_bandwidth(self) -> int | None:
        """Of the links within the partition.

        Raises:
            errors.ParseError: it is no quantity.
        """
        told = self.ring_bus_bandwidth
        return None if told is None else quantity.parse(told)


@dataclass(frozen=True, kw_only=True, slots=True)
class GPURequest:
    """The GPUs: how many, and what of each; ``shared``: less than a whole one."""

    count: int
    each: Amounts
    shared: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceShareRequest:
    """The whole request.

    Attributes:
        amounts: device type -> resources, those of GPUs in Koordinator's own.
        joint: device types to be chosen together, the leading one first.
        same_pcie: they must be on the same switches.
    """

    amounts: Mapping[str, Amounts]
    gpus: GPURequest | None = None
    hints: Mapping[str, DeviceHint] = field(default_factory=dict)
    joint: tuple[str, ...] = ()
    same_pcie: bool = False
    partition: PartitionSpec | None = None


def read_device_request(
    resources: Mapping[str, str | int], annotations: Mapping[str, str]
) -> DeviceShareRequest | None:
    """Read a pod's requests; None where it asks for no devices.

    Raises:
        DeviceRequestError: a resource or an annotation is wrong.
    """
    amounts = _amounts(resources)
    if not amounts:
        return None
    told = _annotation(annotations, ALLOCATE_HINT, dict[str, DeviceHint | None])
    hints = {kind: hint for kind, hint in told.items() if hint is not None}
    joint = _annotation(annotations, JOINT_ALLOCATE, _Joint)
    kinds = tuple(
        kind
        for kind in joint.device_types or ()
        if kind in amounts
        and not (kind in hints and hints[kind].allocate_strategy == APPLY_FOR_ALL)
    )
    return DeviceShareRequest(
        amounts=amounts,
        gpus=_gpus(amounts[GPU]) if GPU in amounts else None,
        hints=hints,
        joint=kinds,
        same_pcie=joint.required_scope == SAME_PCIE,
        partition=_partition(annotations) if GPU in amounts else None,
    )


def _amounts(resources: Mapping[str, str | int]) -> dict[str, Amounts]:
    amounts: dict[str, Amounts] = {}
    for kind, names in _NAMES.items():
        told = {name: quantity.parse(resources[name]) for name in names if name in resources}
        told = {name: amount for name, amount in told.items() if amount}
        if not told:
            continue
        for name in _PERCENTAGES:
            if name in told and told[name] > 100 and told[name] % 100:
                raise DeviceRequestError(f"invalid resource unit {name}: {resources[name]}")
        amounts[kind] = _gpu_amounts(told) if kind == GPU else told
    return amounts


def _gpu_amounts(told: Amounts) -> Amounts:
    if set(told) not in _GPU_MIXTURES or not _is_divisible(told):
        raise DeviceRequestError(f"invalid resource device requests: [{' '.join(sorted(told))}]")
    for name in WHOLE_GPUS:
        if name in told:
            return {GPU_CORE: told[name] * 100, GPU_MEMORY_RATIO: told[name] * 100}
    if GPU_RESOURCE in told:
        return {GPU_CORE: told[GPU_RESOURCE], GPU_MEMORY_RATIO: told[GPU_RESOURCE]}
    return told


def _is_divisible(told: Amounts) -> bool:
    """Percentages are of one GPU, or divide evenly among several."""
    shares = told.get(GPU_SHARED)
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        percent = told.get(name, 0)
        if shares:
            if percent % shares or percent // shares > 100:
                return False
        elif percent > 100 and percent % 100:
            return False
    return True


def _gpus(amounts: Amounts) -> GPURequest:
    ratio = amounts.get(GPU_MEMORY_RATIO, 0)
    count = amounts.get(GPU_SHARED, 0)
    if not count:
        count = ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1
    each = {GPU_CORE: amounts[GPU_CORE] // count} if GPU_CORE in amounts else {}
    if GPU_MEMORY_RATIO in amounts:
        each[GPU_MEMORY_RATIO] = ratio // count
        return GPURequest(count=count, each=each, shared=ratio // count < 100)
    if GPU_MEMORY in amounts:
        each[GPU_MEMORY] = amounts[GPU_MEMORY] // count
    return GPURequest(count=count, each=each, shared=GPU_MEMORY in amounts)


def _annotation(annotations: Mapping[str, str], key: str, kind: type[_T]) -> _T:
    text = annotations.get(key, "null")
    if text.strip() == "null":
        return kind()
    try:
        return jsontext.decode(text, kind, key)
    except errors.MalformedError as error:
        why = "unexpected end of JSON input" if "truncated" in error.why else error.why
        raise DeviceRequestError(f"invalid {_ANNOTATED[key]} annotation, err: {why}") from error


def _partition(annotations: Mapping[str, str]) -> PartitionSpec | None:
    if GPU_PARTITION_SPEC not in annotations:
        return None
    spec = _annotation(annotations, GPU_PARTITION_SPEC, PartitionSpec)
    try:
        spec.least_bandwidth()
    except errors.ParseError as error:
        raise DeviceRequestError(f"invalid GPUPartitionSpec annotation, err: {error}") from error
    return spec


def selects(selector: wire.LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; none and an empty one select everything."""
    return selector is None or selectors.selector(selector).matches(labels)
