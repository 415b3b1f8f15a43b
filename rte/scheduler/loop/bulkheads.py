"""Bulkheads of the scheduler: whatever raises puts one object or one unit aside (pure).

What is aside is replaced by something inert until its time is over or its author changes it: a pod
by one that waits with that reason, a report by one that is not trusted. So no rule has to know of
it, users are told as of any other pod that waits, and the loop goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.scheduler.cache.intake import IntakeResult, key_of
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import NodeEntry, Report
from rte.scheduler.framework.status import Status
from rte.scheduler.loop.messages import Due, Gone, Listed, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.cache.intake import Intake
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.profile import Profile
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.loop.messages import Timers
    from rte.telemetry.quarantine import Bulkhead, Fault, Quarantine

#: Objects that could not be taken in and are kept to be tried again; others are when they change.
_MOST_OBJECTS = 100

#: Stands for the plugin that refuses a node to a pod about which it raises; and its reason.
RAISES = "InternalError"
_WHY = "node(s) about which this pod causes an internal error"

#: An ordinary pod: about a node that is in order it raises nothing.
_ASKS = {"cpu": "1", "memory": "1Gi"}
_ORDINARY: Mapping[str, Any] = {
    "metadata": {"name": "ordinary", "namespace": "default", "uid": "ordinary"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": _ASKS, "limits": _ASKS}}]},
}


class Bulkheads:
    """Puts aside what raises, and tries it again.

    Args:
        quarantine: who is aside.
        cluster: what is known.
        profile: the rules.
        intake: objects of the API into the cluster.
        timers: deadlines.
        take: is given what has become of objects of a collection.

    Attributes:
        now: seconds of the machine's clock.
        raised: nodes about which something has raised, and whether that was about the node alone.
    """

    def __init__(
        self,
        quarantine: Quarantine,
        cluster: Cluster,
        profile: Profile,
        intake: Intake,
        timers: Timers,
        take: Callable[[IntakeResult, float], None],
    ) -> None:
        self.quarantine, self._cluster, self._profile = quarantine, cluster, profile
        self._intake, self._timers, self._take = intake, timers, take
        #: What raised, to be tried again: objects as they came, pods, reports and Nodes as read.
        self._objects: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._pods: dict[str, PodView] = {}
        self._reports: dict[str, Report] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self.raised: dict[str, bool] = {}
        self.now = 0.0
        intake.instead = self._instead
        profile.raised = self._on_node

    def guard(self, kind: str, key: str) -> Bulkhead:
        """Work about that thing, behind a bulkhead."""
        return self.quarantine.guard(kind, key, self.now)

    # --- objects that cannot be taken in ---------------------------------------------------------

    def told(self, event: Seen | Gone, now: float) -> None:
        """What the API shows is taken in as a whole, or not at all."""
        self.now, collection = now, event.collection
        if isinstance(event, Gone):
            self._gone(event, now)
            return
        metadata = event.obj.get("metadata")
        key = key_of(collection, metadata if isinstance(metadata, dict) else {})
        known = self._objects.get((collection, key))
        if known is not None:
            is_as_it_was = _authored(known.obj) == _authored(event.obj)
            if is_as_it_was and self.quarantine.holds(collection, key, now):
                self._objects[collection, key] = event
                return
            del self._objects[collection, key]
        try:
            taken = self._intake.seen(
                collection, event.obj, now, age_s=event.age_s, as_of=event.as_of
            )
            self._take(taken, now)
        except Exception as error:  # noqa: BLE001 - this object alone is put aside
            fault = self.quarantine.put(collection, key, error, now)
        else:
            if known is not None:
                self.quarantine.release(collection, key)
            if collection == "reports":  # what was put aside before is not to come back
                self._reports.pop(key, None)
            return
        self._objects[collection, key] = event
        if len(self._objects) > _MOST_OBJECTS:
            self._objects.popitem(last=False)
        self._again(collection, key, fault)
        with self.quarantine.guard("retractions", f"{collection} {key}", now):
            self._retract(event, key, fault, now)

    def missing(self, event: Listed, gone: Iterable[str]) -> set[str]:
        """What a list lacks: of what was taken in (``gone``), and of what could not be."""
        tried = (key for collection, key in self._objects if collection == event.collection)
        return {*gone, *(key for key in tried if key not in event.keys)}

    def _gone(self, event: Gone, now: float) -> None:
        collection, key = event.collection, event.key
        self._objects.pop((collection, key), None)
        match collection:
            case "pods":
                self._pods.pop(key, None)
            case "nodes":
                self._nodes.pop(key, None)
            case "reports":
                self._reports.pop(key, None)
        with self.quarantine.guard(collection, key, now) as bulkhead:
            self._take(self._intake.gone(collection, key, now, event.as_of), now)
        if collection == "pods" and bulkhead.fault is not None:
            with self.quarantine.guard("retractions", f"{collection} {key}", now):
                self._expunge(key, now)
        self.quarantine.forget(collection, key)

    def _retract(self, event: Seen, key: str, fault: Fault, now: float) -> None:
        """However far the object was taken in: what nobody may build on is taken out again."""
        cluster, collection = self._cluster, event.collection
        match collection:
            case "pods":
                self._retract_pod(event.obj, key, fault, now)
            case "nodes":
                cluster.remove_node(key)
            case "reports":
                self._intake.gone(collection, key, now)  # so that it is read once more
                cluster.set_report(key, Report(broken=str(fault)), now)
            case "slices":
                self._take(self._intake.gone(collection, key, now), now)
            case _:
                pass  # what was last known of it stands, as of one that is malformed

    def _retract_pod(self, obj: Mapping[str, Any], uid: str, fault: Fault, now: float) -> None:
        view = self._pods.pop(uid, None) or self._cluster.pods.get(uid)
        shapes = self._cluster.shapes
        self._expunge(uid, now)
        if view is None or not view.node:
            view = objects.stand_in(obj, str(fault), shapes)
        if view is not None:
            # Without a version: the same object is taken in when it is tried again.
            substitute = replace(objects.put_aside(view, str(fault), shapes), version=0)
            self._set(substitute, now)

    def _expunge(self, uid: str, now: float) -> None:
        view = self._cluster.pods.get(uid)
        self._cluster.expunge(uid)
        if view is not None:
            self._take(IntakeResult(pods=[(view, None)]), now)

    # --- pods about which a decision raises ------------------------------------------------------

    def put_aside(self, uids: Iterable[str], fault: Fault, now: float) -> None:
        """Nothing is decided about these pods for a while."""
        for uid in uids:
            known = self._cluster.pods.get(uid)
            if known is not None and uid not in self._pods:
                self._hold(known, fault, now)

    def _hold(self, pod: PodView, fault: Fault, now: float) -> None:
        """Something inert stands for the pod until it is tried again."""
        self._pods[pod.uid] = pod
        self._again("pods", pod.uid, fault)
        substitute = objects.put_aside(pod, str(fault), self._cluster.shapes)
        with self.quarantine.guard("retractions", f"pods {pod.uid}", now) as bulkhead:
            self._cluster.straighten(pod.uid)
            self._set(substitute, now)
        if bulkhead.fault is not None:
            with self.quarantine.guard("retractions", f"pods {pod.uid}", now):
                self._expunge(pod.uid, now)
                self._set(substitute, now)

    def _set(self, view: PodView, now: float) -> None:
        before = self._cluster.pods.get(view.uid)
        if self._cluster.set_pod(view, now):
            self._take(IntakeResult(pods=[(before, view)]), now)

    def _instead(self, view: PodView) -> PodView:
        """The pod as it is taken in: while it is aside, what stands for it."""
        kept = self._pods.get(view.uid)
        if kept is None:
            return view
        fault = self.quarantine.holds("pods", view.uid, self.now)
        if fault is None or not objects.is_as_written(view, kept):
            del self._pods[view.uid]
            self.quarantine.release("pods", view.uid)
            return view
        self._pods[view.uid] = view
        return objects.put_aside(view, str(fault), self._cluster.shapes)

    # --- nodes -----------------------------------------------------------------------------------

    def _on_node(self, node: NodeEntry, error: Exception, shape: Shape | None = None) -> Status:
        """Something raised about one node: it is not taken; without a shape: whoever asks."""
        known = self._cluster.nodes.get(node.name)
        if known is node:
            self.raised[node.name] = self.raised.get(node.name, False) or shape is None
        who = f"{shape.namespace}/{shape.pod.name}" if shape is not None else ""
        fault = self.quarantine.put("decisions", f"{node.name} {who}".rstrip(), error, self.now)
        return Status(reason=_WHY, message=str(fault), plugin=RAISES)

    def is_to_blame(self, error: Exception) -> bool:
        """Whether the fault lies with a node that was being looked at: then that is put aside."""
        trace, entry = error.__traceback__, None
        while trace is not None:
            for value in trace.tb_frame.f_locals.values():
                if isinstance(value, NodeEntry):
                    entry = value
            trace = trace.tb_next
        known = self._cluster.nodes.get(entry.name) if entry is not None else None
        if known is None or self._works(known):
            return False
        self.raised[known.name] = False
        return True

    def settle(self, now: float) -> bool:
        """Put aside what of the nodes that have raised is at fault; whether there was any."""
        blamed = False
        while self.raised:
            name, alone = self.raised.popitem()
            with self.quarantine.guard("retractions", f"nodes {name}", now):
                entry = self._cluster.nodes.get(name)
                if entry is not None and (alone or not self._works(entry)):
                    blamed = True
                    self._blame(entry, now)
        return blamed

    def _works(self, entry: NodeEntry) -> bool:
        """Whether an ordinary pod raises nothing about the node."""
        try:
            entry.zone_bound()
            self._profile.evaluate(self._cluster.shapes.of(_ORDINARY), entry)
        except Exception:  # noqa: BLE001 - that it raises is the answer
            return False
        return True

    def _blame(self, entry: NodeEntry, now: float) -> None:
        """A pod of the node without which it is in order, its report, or the Node itself."""
        pods = list(entry.pods)
        if pods and self._works(entry.without(frozenset(pods))):
            while len(pods) > 1:
                half = pods[: len(pods) // 2]
                # Of several that are at fault one is found each time.
                alone = frozenset(entry.pods) - frozenset(half)
                pods = pods[len(half) :] if self._works(entry.without(alone)) else half
            culprit = entry.pods[pods[0]]
            fault = self._fault("pods", culprit.uid, f"node {entry.name} raises with it", now)
            self.put_aside([culprit.uid], fault, now)
        elif entry.report is not None and not entry.report.broken:
            self._reports[entry.name] = entry.report
            fault = self._fault("reports", entry.name, "decisions about the node raise", now)
            self._again("reports", entry.name, fault)
            self._cluster.set_report(entry.name, Report(broken=str(fault)), now)
        elif entry.info is not None:
            self._nodes[entry.name] = entry.info
            fault = self._fault("nodes", entry.name, "decisions about the node raise", now)
            self._again("nodes", entry.name, fault)
            self._cluster.remove_node(entry.name)

    def _fault(self, kind: str, key: str, why: str, now: float) -> Fault:
        return self.quarantine.put(kind, key, RuntimeError(why), now)

    # --- once more -------------------------------------------------------------------------------

    def _again(self, kind: str, key: str, fault: Fault) -> None:
        self._timers.at(fault.until, Due.ASIDE, f"{kind} {key}")

    def due(self, what: str, now: float) -> None:
        """The time of something that was put aside is over."""
        self.now = now
        kind, _, key = what.partition(" ")
        if (fault := self.quarantine.holds(kind, key, now)) is not None:
            self._again(kind, key, fault)  # it was put aside once more since
            return
        self.quarantine.release(kind, key)
        seen = self._objects.get((kind, key))
        if seen is not None:
            self.told(seen, now)
        elif kind == "pods" and key in self._pods:
            pod = self._pods.pop(key)
            with self.quarantine.guard(kind, key, now) as bulkhead:
                self._set(pod, now)
            if bulkhead.fault is not None:
                self._hold(pod, bulkhead.fault, now)
        elif kind == "reports" and key in self._reports:
            report, entry = self._reports.pop(key), self._cluster.nodes.get(key)
            if entry is not None and entry.report is not None and entry.report.broken:
                self._cluster.set_report(key, report, now)
        elif kind == "nodes" and key in self._nodes:
            info, entry = self._nodes.pop(key), self._cluster.nodes.get(key)
            if entry is not None and entry.info is None:
                self._cluster.set_node(info)


def _authored(obj: Mapping[str, Any]) -> tuple[object, ...]:
    """What its author says in an object: where that is equal, it was left as it was."""
    metadata, status = obj.get("metadata") or {}, obj.get("status")
    said = (metadata.get(key) for key in ("annotations", "labels", "deletionTimestamp"))
    phase = status.get("phase") if isinstance(status, dict) else None
    rest = {key: obj[key] for key in obj if key not in ("metadata", "status")}
    return (*said, phase, rest)
