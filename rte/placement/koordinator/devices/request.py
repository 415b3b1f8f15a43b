"""What a pod asks of DeviceShare: resources and the annotations beside them.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/utils.go`` and ``devicehandler_gpu.go``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rte import errors
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
Selector: TypeAlias = "Mapping[str, Any]"


class DeviceRequestError(errors.RteError):
    """No node can honour the request; the text is Koordinator's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceHint:
    """How devices of one type are to be chosen; a selector is None where there is none."""

    selector: Selector | None = None
    vf_selector: Selector | None = None
    strategy: str = ""
    required_scope: str = ""
    exclusive: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionSpec:
    """The GPUs are to be a partition; ``restricted``: one of the best score only."""

    restricted: bool = False
    ring_bus_bandwidth: int | None = None


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
    hints = {
        kind: _hint(told)
        for kind, told in _annotation(annotations, ALLOCATE_HINT, "DeviceAllocateHint").items()
        if told is not None
    }
    joint = _annotation(annotations, JOINT_ALLOCATE, "DeviceJointAllocate")
    kinds = tuple(
        kind
        for kind in _device_types(joint)
        if kind in amounts and not (kind in hints and hints[kind].strategy == APPLY_FOR_ALL)
    )
    return DeviceShareRequest(
        amounts=amounts,
        gpus=_gpus(amounts[GPU]) if GPU in amounts else None,
        hints=hints,
        joint=kinds,
        same_pcie=joint.get("requiredScope") == SAME_PCIE,
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


def _annotation(annotations: Mapping[str, str], key: str, name: str) -> dict[str, Any]:
    text = annotations.get(key)
    if text is None:
        return {}
    try:
        value = jsontext.load(text, key)
    except errors.MalformedError as error:
        ended = "unexpected end" in error.why
        why = "unexpected end of JSON input" if ended else error.why
        raise DeviceRequestError(f"invalid {name} annotation, err: {why}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DeviceRequestError(f"invalid {name} annotation, err: must be an object")
    return value


def _device_types(joint: Mapping[str, Any]) -> list[str]:
    wanted = joint.get("deviceTypes") or []
    if not isinstance(wanted, list) or not all(isinstance(kind, str) for kind in wanted):
        raise DeviceRequestError("invalid DeviceJointAllocate annotation, err: wrong type")
    return wanted


def _hint(told: Any) -> DeviceHint:
    if not isinstance(told, dict):
        raise DeviceRequestError("invalid DeviceAllocateHint annotation, err: must be an object")
    texts = {
        name: told.get(name, "")
        for name in ("allocateStrategy", "requiredTopologyScope", "exclusivePolicy")
    }
    selectors = {name: told.get(name) for name in ("selector", "vfSelector")}
    if not all(isinstance(text, str) for text in texts.values()) or not all(
        selector is None or _is_selector(selector) for selector in selectors.values()
    ):
        raise DeviceRequestError("invalid DeviceAllocateHint annotation, err: wrong type")
    return DeviceHint(
        selector=selectors["selector"],
        vf_selector=selectors["vfSelector"],
        strategy=texts["allocateStrategy"],
        required_scope=texts["requiredTopologyScope"],
        exclusive=texts["exclusivePolicy"],
    )


def _partition(annotations: Mapping[str, str]) -> PartitionSpec | None:
    if GPU_PARTITION_SPEC not in annotations:
        return None
    told = _annotation(annotations, GPU_PARTITION_SPEC, "GPUPartitionSpec")
    bandwidth = told.get("ringBusBandwidth")
    try:
        least = None if bandwidth is None else quantity.parse(bandwidth)
    except errors.ParseError as error:
        raise DeviceRequestError(f"invalid GPUPartitionSpec annotation, err: {error}") from error
    return PartitionSpec(
        restricted=told.get("allocatePolicy") == "Restricted", ring_bus_bandwidth=least
    )


def _is_selector(selector: Any) -> bool:
    if not isinstance(selector, dict):
        return False
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    return (
        isinstance(labels, dict)
        and isinstance(expressions, list)
        and all(
            isinstance(expression, dict)
            and isinstance(expression.get("key"), str)
            and expression.get("operator") in {"In", "NotIn", "Exists", "DoesNotExist"}
            and isinstance(expression.get("values") or [], list)
            for expression in expressions
        )
    )


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; none and an empty one select everything."""
    if not selector:
        return True
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_satisfies(it, labels) for it in selector.get("matchExpressions") or ())


def _satisfies(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
