"""One node as the scheduler sees it: its Node, its report, its pods, and what follows from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rte import errors, nrt, placement
from rte.model import bits
from rte.placement.foreign import zones
from rte.placement.koordinator.node import AllocationError
from rte.scheduler.framework import outlook as state
from rte.scheduler.framework import predicates
from rte.scheduler.plugins import koordinator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.node import NodeState
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.shape import Shape

#: Stands for "the manager does not count this" in the free amounts of a zone.
UNBOUNDED = 1 << 62

#: Seconds for which a pod that has ended is remembered although no report names it: a late
#: report might still.
TOMBSTONE_S = 300.0

#: Answers kept for one state of a node; each holds the node's state after the pod.
_MOST_REMEMBERED = 32


@dataclass(frozen=True, kw_only=True)
class Report:
    """A NodeResourceTopology, decoded once for each of its versions.

    Exactly one of ``state`` (ours) and ``table`` (another exporter's) is set, neither when the
    object is ``broken`` (then that says how). ``owner`` is the UID of the owning Node, if named.
    """

    state: NodeState | None = None
    table: zones.ZoneTable | None = None
    broken: str = ""
    owner: str = ""


def read_report(obj: Mapping[str, Any]) -> Report:
    """Decode an NRT of any exporter; a malformed one is a report that says so."""
    try:
        owners = obj["metadata"].get("ownerReferences") or ()
        owner = next((str(o.get("uid") or "") for o in owners if o.get("kind") == "Node"), "")
        decoded = nrt.decode(obj)
        if decoded.state is not None:
            return Report(state=decoded.state, owner=owner)
        if nrt.NODE_STATE_ANNOTATION in (obj["metadata"].get("annotations") or {}):
            return Report(broken="; ".join(decoded.problems)[:300] or "no state", owner=owner)
        return Report(table=nrt.zone_table(decoded), owner=owner)
    except (errors.RteError, AttributeError, KeyError, TypeError, ValueError) as error:
        return Report(broken=" ".join(str(error).split())[:300] or type(error).__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be set for all nodes; see :class:`rte.scheduler.settings.SchedulerSettings`."""

    shared_limit: float = 0.0
    resource_status: bool = False


@dataclass(frozen=True, kw_only=True)
class Check:
    """One node's answer to one shape. ``reason`` is empty when the pod may go there.

    Attributes:
        reason: in kube-scheduler's or the kubelet's words.
        message: more of it, for ``rte explain``.
        waits: an unconfirmed pod in front is all that stands in the way.
        resources: the pod would fit if some pods left (what preemption can change).
        uncertain: a last resort: this kubelet's rules cannot be known.
        verdict: of the managers, where they were asked.
        resource_status: Koordinator's annotation to write with the bind, if any.
    """

    reason: str = ""
    message: str = ""
    waits: bool = False
    resources: bool = False
    uncertain: bool = False
    verdict: state.Verdict | None = None
    resource_status: str = ""


_DEFAULTS = Options()


class NodeEntry:
    """The record of one node. Whoever changes a field calls :meth:`touch`.

    Attributes:
        name: of the node.
        row: its row in the table of columns.
        info: the Node, None while there is none (then nothing is placed here).
        report: the NRT, None while there is none (plain Kubernetes rules).
        alive: whether the agent's Lease is being renewed, None where there is none.
        pods: API UID -> pod that is bound (or assumed to be) and not terminal, in that order.
        used: node totals of these pods.
        gone: kubelet UID -> when the API showed it terminal or gone.
        endings: number of pods that have ended here.
        bound_at: API UID -> ``endings`` when its binding was learnt.
        unseen: UIDs of pods that another exporter's NRT may not count yet.
        changed: sequence number of the last change.
    """

    def __init__(self, name: str, row: int, options: Options = _DEFAULTS) -> None:
        self.name = name
        self._options = options
        self.row = row
        self.info: NodeInfo | None = None
        self.report: Report | None = None
        self.alive: bool | None = None
        self.pods: dict[str, PodView] = {}
        self.used: Counter[str] = Counter()
        self.gone: dict[str, float] = {}
        self.endings = 0
        self.bound_at: dict[str, int] = {}
        self.unseen: set[str] = set()
        self.nominated: dict[str, PodView] = {}
        self.held_off = ""
        self.changed = 0
        self._outlook: state.Outlook | None = None
        self._free: tuple[tuple[int, int, int], ...] | None = None
        self._checks: dict[bytes, Check] = {}

    def touch(self, sequence: int) -> None:
        """Forget what was derived."""
        self.changed = sequence
        self._outlook = None
        self._free = None
        self._checks.clear()

    def set_info(self, info: NodeInfo | None) -> None:
        """The Node has changed."""
        self.info = info

    def add(self, pod: PodView) -> None:
        """A pod is bound here, or its view has changed."""
        old = self.pods.get(pod.uid)
        if old is None or old.shape is not pod.shape:
            if old is not None:
                self.used.subtract(old.shape.totals)
            self.used.update(pod.shape.totals)
        if old is None:
            self.unseen.add(pod.uid)
            self.bound_at[pod.uid] = self.endings
        self.pods[pod.uid] = pod

    def drop(self, uid: str) -> PodView | None:
        """A pod is no longer here."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.used.subtract(pod.shape.totals)
            self.unseen.discard(uid)
            self.bound_at.pop(uid, None)
        return pod

    def bury(self, pod: PodView, now: float) -> None:
        """The API shows the pod terminal or gone, so the kubelet has let go of it.

        The mirror of a static pod may go while the pod runs on: that says nothing.
        """
        self.endings += 1
        if not pod.mirror:
            self.gone[pod.kubelet_uid] = now

    def forget_buried(self, now: float) -> None:
        """Drop tombstones that no report names any more."""
        reported = self.report.state if self.report else None
        named = reported.admitted | reported.holdings.keys() if reported else frozenset()
        self.gone = {
            uid: since
            for uid, since in self.gone.items()
            if uid in named or now - since < TOMBSTONE_S
        }

    def distrust(self) -> str:
        """Why the report cannot be built on, empty when it can (or none is to be expected)."""
        report = self.report
        if report is None:
            return "node(s) whose rte agent has published nothing" if self.alive else ""
        if report.broken:
            return "node(s) with a malformed NodeResourceTopology"
        if report.owner and self.info and self.info.uid and report.owner != self.info.uid:
            return "node(s) whose NodeResourceTopology belongs to an earlier node of that name"
        if report.state is not None and self.alive is False:
            return "node(s) whose rte agent is not alive"
        if report.state is not None and not report.state.synced:
            return "node(s) whose kubelet is re-admitting its pods"
        return ""

    def knowledge(self) -> str:
        """How the zones are known: ``exact``, ``zones``, ``none`` or ``distrusted``."""
        if self.distrust():
            return "distrusted"
        if self.report is None:
            return "none"
        return "exact" if self.report.state is not None else "zones"

    def outlook(self) -> state.Outlook | None:
        """What we know of the managers; None without a report of ours."""
        reported = self.report.state if self.report else None
        if reported is None:
            return None
        if self._outlook is None:
            unconfirmed = [p for p in self.pods.values() if p.kubelet_uid not in reported.admitted]
            ended_since = {
                p.kubelet_uid for p in unconfirmed if self.bound_at[p.uid] < self.endings
            }
            self._outlook = state.resolve(
                reported,
                [pod.shape.as_pod(pod.kubelet_uid) for pod in unconfirmed],
                frozenset(self.gone),
                frozenset(ended_since),
                frozenset(p.kubelet_uid for p in self.pods.values() if p.deleting),
            )
        return self._outlook

    def is_confirmed(self, pod: PodView) -> bool:
        """Whether the kubelet is known to have admitted the pod."""
        reported = self.report.state if self.report else None
        return reported is None or pod.kubelet_uid in reported.admitted

    def check(self, shape: Shape) -> Check:
        """Everything that depends on this node alone, cheapest first; remembered."""
        known = self._checks.get(shape.key)
        if known is None:
            if len(self._checks) >= _MOST_REMEMBERED:
                self._checks.clear()
            known = self._checks[shape.key] = self._check(shape)
        return known

    def _check(self, shape: Shape) -> Check:
        if self.info is None:
            return Check(reason="node(s) that have no Node object")
        why = predicates.constraints(shape, self.info)
        if why:
            return Check(reason=why)
        why = predicates.resources(shape.totals, self.info.allocatable, self.used)
        if why is None and shape.ports:
            why = predicates.ports(
                shape.ports, (port for pod in self.pods.values() for port in pod.shape.ports)
            )
        if why:
            return Check(reason=why, resources=True)
        check = self._managers(shape, self.info)
        if check.reason:
            return check
        return self._crowded(shape, check) or self._koordinator(shape, check)

    def _crowded(self, shape: Shape, check: Check) -> Check | None:
        """The option that bounds the limits of sharing containers by the shared pool.

        What shares floats over the whole pool, so a bound for the node is one for each zone.
        """
        outlook = self.outlook()
        if not self._options.shared_limit or outlook is None:
            return None
        after = check.verdict.after if check.verdict and check.verdict.after else None
        pool = (after or outlook.predicted).shared
        if outlook.base.config.cpu_policy != "static":
            pool = outlook.base.topology.all_cpus & ~outlook.base.reserved
        load = shape.shared_milli + sum(pod.shape.shared_milli for pod in self.pods.values())
        if load <= self._options.shared_limit * 1000 * pool.bit_count():
            return None
        return Check(reason="node(s) whose shared CPUs would be crowded", resources=True)

    def _koordinator(self, shape: Shape, check: Check) -> Check:
        """With the option for it, CPUs and zones where no CPU manager assigns them."""
        reported = self.report.state if self.report else None
        if not self._options.resource_status or reported is None:
            return check
        if not koordinator.applies(reported):
            return check
        try:
            wish = koordinator.wishes(shape)
            if not koordinator.asks(wish):
                return check
            held = [
                koordinator.read(pod.resource_status)
                for pod in self.pods.values()
                if pod.resource_status
            ]
            chosen = koordinator.choose(shape, wish, reported, held)
        except errors.ParseError as error:
            return Check(reason="malformed Koordinator annotation", message=str(error))
        except AllocationError as error:
            return Check(reason=error.reasons[0], message=str(error), resources=True)
        if not (chosen.cpus or chosen.zones):
            return check
        return replace(check, resource_status=koordinator.write(chosen))

    def _managers(self, shape: Shape, info: NodeInfo) -> Check:
        """Whether the kubelet's managers admit the pod, by prediction or by zone arithmetic."""
        report = self.report
        if not shape.may_need_zone:
            return Check()
        if report is None:
            return Check(reason=self.distrust())
        pod = shape.as_pod("")
        if report.state is not None and not state.is_exacting(pod, report.state):
            return Check()
        why = self.distrust()
        if why:
            return Check(reason=why)
        if self.held_off:
            return Check(reason=self.held_off, waits=True)
        outlook = self.outlook()
        if outlook is not None:
            lacks = self._lacks_zone(outlook, shape)
            return lacks or check_of(state.judge(outlook, pod))
        return self._by_zones(report.table, shape, info)

    def _lacks_zone(self, outlook: state.Outlook, shape: Shape) -> Check | None:
        """A refusal that needs no admission: some container finds no zone with so many CPUs.

        Saves a prediction for each waiting shape whenever a node changes a little.
        """
        config = outlook.base.config
        if config.topology_policy != "single-numa-node" or config.cpu_policy != "static":
            return None
        most = max((cpus for _, cpus, _ in self.free_by_zone() or ()), default=0)
        need = max(shape.exclusive_cpus, default=0)
        if need <= most:
            return None
        return Check(
            reason="TopologyAffinityError",
            message=f"no NUMA zone has {need} free CPUs (at most {most})",
            resources=True,
            verdict=state.Verdict(admitted=False, reason="TopologyAffinityError"),
        )

    def _by_zones(self, table: zones.ZoneTable | None, shape: Shape, info: NodeInfo) -> Check:
        """A foreign exporter's NRT: pods that it may not count yet are taken off every zone."""
        if table is None:
            return Check()
        ahead = [pod.shape.pod for uid, pod in self.pods.items() if uid in self.unseen]
        verdict = zones.filter_zones(
            zones.overlay(table, ahead), shape.pod, info.allocatable.keys()
        )
        if verdict:
            return Check()
        return Check(
            reason=", ".join(verdict.reasons),
            message=f"container {verdict.container!r}, resource {verdict.resource!r}",
            resources=True,
            waits=bool(ahead),
        )

    def free_by_zone(self) -> tuple[tuple[int, int, int], ...] | None:
        """Of each zone (id, free exclusive CPUs, free bytes of memory); None without prediction.

        What a manager does not count is :data:`UNBOUNDED`.
        """
        outlook = self.outlook()
        if outlook is None or self._free is not None:
            return self._free
        now = outlook.predicted
        pinned = now.config.cpu_policy == "static"
        free = now.shared & ~now.reserved
        out = []
        for zone, cpus in now.topology.zone_cpus.items():
            row = now.memory.get(zone)
            memory = row.amounts.get("memory") if row else None
            out.append(
                (
                    zone,
                    (free & cpus).bit_count() if pinned else UNBOUNDED,
                    memory.free if memory else UNBOUNDED,
                )
            )
        self._free = tuple(out)
        return self._free

    def without(self, uids: frozenset[str]) -> NodeEntry:
        """This node as it will be when these pods have ended."""
        twin = self._twin()
        for uid in uids:
            pod = twin.drop(uid)
            if pod is not None:
                twin.bury(pod, 0.0)
        return twin

    def beside(self, pods: Iterable[PodView]) -> NodeEntry:
        """This node as it would be with these pods bound to it as well."""
        twin = self._twin()
        for pod in pods:
            twin.add(pod)
        return twin

    def ahead_of(self, pod: PodView) -> list[PodView]:
        """Pods not less important than that one, for which this node makes room."""
        return [
            other
            for uid, other in self.nominated.items()
            if uid != pod.uid and other.priority >= pod.priority
        ]

    def _twin(self) -> NodeEntry:
        twin = NodeEntry(self.name, self.row, self._options)
        twin.info, twin.report, twin.alive = self.info, self.report, self.alive
        twin.held_off = self.held_off
        twin.pods, twin.used = dict(self.pods), Counter(self.used)
        twin.gone, twin.unseen = dict(self.gone), set(self.unseen)
        twin.endings, twin.bound_at = self.endings, dict(self.bound_at)
        return twin

    def zone_shares(self) -> Mapping[str, int]:
        """Kubelet UID -> zones that it holds something in (prediction included)."""
        outlook = self.outlook()
        if outlook is None:
            return {}
        by_cpu = outlook.predicted.topology.zone_cpus
        out = {}
        for uid, containers in outlook.predicted.holdings.items():
            mask = 0
            for holding in containers.values():
                for block in holding.memory:
                    mask |= block.zones
                mask |= bits.of(zone for zone, cpus in by_cpu.items() if cpus & holding.cpus)
            out[uid] = mask
        return out


def check_of(verdict: state.Verdict) -> Check:
    """The managers' verdict as a node's answer."""
    if verdict.admitted:
        return Check(verdict=verdict)
    return Check(
        reason=verdict.reason,
        message=verdict.message,
        waits=verdict.waits,
        resources=not verdict.waits,
        uncertain=verdict.uncertain,
        verdict=verdict,
    )


def predict(entry: NodeEntry, pod: PodView) -> placement.Admission | None:
    """What the kubelet would answer right now, pods in flight included; None without a report."""
    outlook = entry.outlook()
    if outlook is None:
        return None
    return placement.admit(outlook.predicted, replace(pod.shape.pod, uid=pod.kubelet_uid))
