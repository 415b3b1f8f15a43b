"""What a pod asks of Koordinator: QoS label, resource-spec and numa-topology-spec annotations.

Source: Koordinator ``apis/extension`` and ``pkg/scheduler/plugins/nodenumaresource/plugin.go``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.model.pod import QOS
from rte.placement.koordinator.cpus import CONSTRAINED_BURST, FULL_PCPUS, SPREAD_BY_PCPUS
from rte.placement.koordinator.policy import POLICIES
from rte.reader import jsontext

if TYPE_CHECKING:
    from rte.reader.json import Json

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"

QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
_BOUND_QOS = ("LSE", "LSR")
_PRIORITY_BANDS = {"koord-prod": 9, "koord-mid": 7, "koord-batch": 5, "koord-free": 3}


@dataclass(frozen=True, kw_only=True, slots=True)
class KoordinatorPod:
    """A pod's wishes, with Koordinator's defaults applied.

    Attributes:
        qos: ``LSE``, ``LSR``, ``LS``, ``BE``, ``SYSTEM`` or ``""``.
        binds: the pod wants CPUs of its own (LSE/LSR of priority prod, whole CPUs).
        bind: the CPU bind policy in force; ``required`` tells whether it is a must.
        burst_in_one_zone: ``ConstrainedBurst`` was asked for; ``burst_required``: as a must.
        exclusive: CPU exclusive policy.
        numa_policy: NUMA topology policy of the pod, ``""`` when it names none.
        numa_exclusive: ``Required``, ``Preferred`` or ``""``.
    """

    qos: str = ""
    binds: bool = False
    bind: str = ""
    required: bool = False
    burst_in_one_zone: bool = False
    burst_required: bool = False
    exclusive: str = ""
    numa_policy: str = ""
    numa_exclusive: str = ""


def read_koordinator_pod(
    metadata: Json,
    *,
    qos: QOS,
    cpu_milli: int,
    priority: int | None = None,
) -> KoordinatorPod:
    """Read labels and annotations of a pod.

    Args:
        metadata: the Pod's ``metadata``.
        qos: Kubernetes QoS class, from which defaults follow.
        cpu_milli: the pod's effective CPU request.
        priority: ``spec.priority``.

    Raises:
        errors.ParseError: an annotation is not the JSON object that it should be, names an unknown
            NUMA policy, or a pod that binds CPUs asks for a fraction of one.
    """
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    spec = _json_object(annotations, RESOURCE_SPEC)
    numa = _json_object(annotations, NUMA_TOPOLOGY_SPEC)
    label = str(labels.get(QOS_LABEL, ""))
    label = label if label in QOS_CLASSES else ""
    required = str(spec.get("requiredCPUBindPolicy", ""))
    preferred = str(spec.get("preferredCPUBindPolicy", "")) or FULL_PCPUS
    required = FULL_PCPUS if required == "Default" else required
    preferred = FULL_PCPUS if preferred == "Default" else preferred
    policy = required or preferred
    numa_policy = str(numa.get("numaTopologyPolicy", ""))
    if numa_policy and numa_policy not in POLICIES:
        why = f"numaTopologyPolicy must be one of {', '.join(POLICIES)}"
        raise errors.ParseError(NUMA_TOPOLOGY_SPEC, numa_policy, why)
    binds = (
        label in _BOUND_QOS
        and _priority_class(labels, priority, label, qos) == "koord-prod"
        and policy in {FULL_PCPUS, SPREAD_BY_PCPUS}
    )
    if binds and cpu_milli % 1000:
        raise errors.ParseError("CPU request", cpu_milli, "the requested CPUs must be integer")
    binds = binds and cpu_milli > 0
    return KoordinatorPod(
        qos=label,
        binds=binds,
        bind=policy if binds else "",
        required=binds and bool(required),
        burst_in_one_zone=CONSTRAINED_BURST in (required, preferred),
        burst_required=required == CONSTRAINED_BURST,
        exclusive=str(spec.get("preferredCPUExclusivePolicy", "")) if binds else "",
        numa_policy=numa_policy,
        numa_exclusive=str(numa.get("singleNUMANodeExclusive", "")),
    )


def _priority_class(labels: Json, priority: int | None, koordinator_qos: str, qos: QOS) -> str:
    named = str(labels.get(PRIORITY_CLASS_LABEL, ""))
    if named in _PRIORITY_BANDS:
        return named
    for name, thousand in _PRIORITY_BANDS.items():
        if priority is not None and thousand * 1000 <= priority < (thousand + 1) * 1000:
            return name
    if koordinator_qos == "BE" or (not koordinator_qos and qos is QOS.BEST_EFFORT):
        return "koord-batch"
    return "koord-prod"


def _json_object(annotations: Json, key: str) -> Json:
    text = annotations.get(key)
    if not text:
        return {}
    value = jsontext.load(text, key)
    if not isinstance(value, dict):
        raise errors.ParseError(key, text, "expected an object")
    return value
