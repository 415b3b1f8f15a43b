"""Why a pod fits a node or not: zone by zone, in the kubelet's words, and what would help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.model import bits, quantity
from rte.model.pod import ContainerKind
from rte.placement.fleet import scores
from rte.placement.kubelet import demand
from rte.placement.kubelet.admission import admit, settle
from rte.placement.kubelet.demand import free_of
from rte.placement.kubelet.outcome import Verdict
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.kubelet.outcome import Admission

#: How many holders are tried one by one, and removed at most, to find whose end would help.
MAX_HOLDERS = 64


@dataclass(frozen=True, slots=True)
class ZoneAnswer:
    """One zone against what has to be found in it.

    ``free`` and ``wanted`` are keyed by resource: CPUs in whole units, the others in base units.
    """

    zone: int
    wanted: Mapping[str, int]
    free: Mapping[str, int]

    @property
    def short(self) -> dict[str, int]:
        """Resource -> how much more would have to be free; empty when the zone holds it all."""
        return {
            name: amount - self.free[name]
            for name, amount in self.wanted.items()
            if self.free[name] < amount
        }


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The kubelet's answer, and what stands behind it.

    Attributes:
        admission: the prediction.
        container: the container that the zones are measured against: the first one refused, or the
            largest of an admitted pod; ``*`` for the whole pod (pod scope).
        zones: of the node, as that container finds them.
        lands: container -> zones that it takes something from (admitted pods).
        would_help: UIDs of the fewest pods whose end would let the pod in, as far as a greedy
            search finds them; empty when none would.
    """

    admission: Admission
    container: str
    zones: tuple[ZoneAnswer, ...]
    lands: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    would_help: tuple[str, ...] = ()


def explain(state: NodeState, pod: Pod) -> Explanation:
    """Predict and explain; the state must be settled, as for :func:`rte.placement.admit`."""
    admission = admit(state, pod)
    container = admission.failed_container or _largest(state, pod)
    wanted = _wanted(pod, container)
    if container == "*" and admission.verdict is not Verdict.UNCERTAIN:
        rules = rules_of(state.config, state.kubelet_version)
        if demand.is_one_piece(pod, rules):
            wanted = {
                "cpu": demand.cpus_of_pod(pod, rules),
                **demand.memory_of_pod(pod, rules),
                **demand.pod_devices_requested(pod, state.devices),
            }
    seen = state if admission.admitted or container == "*" else admission.state
    answers = []
    for zone, free in free_of(seen).zones.items():
        known = dict(free)
        if state.config.cpu_policy != "static":
            del known["cpu"]
        relevant = {name: amount for name, amount in wanted.items() if name in known}
        answers.append(ZoneAnswer(zone, relevant, {name: known[name] for name in relevant}))
    return Explanation(
        admission=admission,
        container=container,
        zones=tuple(answers),
        lands=lands(state, admission) if admission.admitted else {},
        would_help=() if admission.admitted else _would_help(state, pod),
    )


def lands(state: NodeState, admission: Admission) -> dict[str, tuple[int, ...]]:
    """Container -> ids of the zones that its holdings are in."""
    return {
        name: tuple(bits.members(state.zones_of(holding)))
        for name, holding in admission.holdings.items()
    }


def _largest(state: NodeState, pod: Pod) -> str:
    if state.config.topology_scope == "pod":
        return "*"
    return max(pod.containers, key=lambda container: container.requests.get("cpu", 0)).name


def _wanted(pod: Pod, container: str) -> dict[str, int]:
    """What has to be found, zone-bound resources only."""
    if container == "*":
        chosen = [each for each in pod.containers if each.kind is not ContainerKind.INIT]
    else:
        chosen = [each for each in pod.containers if each.name == container]
    return quantity.total(scores.zone_bound(pod, each) for each in chosen)


def _would_help(state: NodeState, pod: Pod) -> tuple[str, ...]:
    """One holder, the smallest that helps; else all, less those who may stay (largest first)."""
    holders = sorted(
        (uid for uid in state.holdings if uid in state.admitted),
        key=lambda uid: (_held_cpus(state, uid), uid),
    )[:MAX_HOLDERS]
    for uid in holders:
        if _fits_without(state, pod, [uid]):
            return (uid,)
    gone = list(holders)
    if not holders or not _fits_without(state, pod, gone):
        return ()
    for uid in sorted(holders, key=lambda uid: (-_held_cpus(state, uid), uid)):
        fewer = [other for other in gone if other != uid]
        if _fits_without(state, pod, fewer):
            gone = fewer
    return tuple(gone)


def _fits_without(state: NodeState, pod: Pod, uids: Sequence[str]) -> bool:
    remaining = (state.admitted | state.holdings.keys()).difference(uids)
    return admit(settle(state, frozenset(remaining)), pod).admitted


def _held_cpus(state: NodeState, uid: str) -> int:
    return state.held_cpus(uid).bit_count()
