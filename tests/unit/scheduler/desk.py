"""A machine with an API server of a few dictionaries and a clock that is moved by hand."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte import nrt, placement
from rte.model.machine import CPU, Zone
from rte.model.machine import Machine as Hardware
from rte.model.node import NodeReading, NodeState
from rte.placement.groups import allocation
from rte.scheduler.framework.writes import Step
from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.messages import Bound, Outcome
from rte.scheduler.report.metrics import SchedulerMetrics
from rte.telemetry.effects import Measured, Said
from tests.unit.scheduler.build import GIB, moment, node_object, pod_object, recorded, state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.writes import RequiredWrite, WriteTarget
    from rte.scheduler.loop.messages import Effect, Event

_LOGGER = logging.getLogger(__name__)
#: That takes each value that a machine measures, as the program's own does.
_METRICS = SchedulerMetrics()


class Desk:
    """Feeds a machine and carries its effects out.

    Attributes:
        now: the machine's clock.
        objects: (collection, key) -> object, as the API has them.
        effects: all effects so far.
        listeners: told of each change of the cluster, after a restart as well.
        answers: whether binds are carried out at once; else they wait in ``binds``.
        solves: whether the solver answers at once; else its questions wait in ``questions``.
        turns: so many follow each event at most.
        faulty: internal errors are what the test is about.
    """

    def __init__(self, *, faulty: bool = False, **options: Any) -> None:
        self.options, self.faulty = options, faulty
        self.machine = SchedulerMachine("rte-scheduler", **options)
        self.listeners = self.machine.listeners
        self.now = 1000.0
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.kubelets: dict[str, NodeState] = {}
        self.effects: list[Effect] = []
        self.binds: list[messages.Bind] = []
        self.evictions: list[messages.Evict] = []
        self.undoing: list[messages.TakeBack] = []
        self.questions: list[messages.Solve] = []
        self.answers = True
        self.solves = True
        self.turns = 10_000
        self.version = 1_000_000
        self.handle(messages.Tick())
        self.handle(messages.Leading(active=True))

    def restart(self) -> None:
        """The scheduler is killed; another one begins with what the API has."""
        self.binds.clear()
        self.evictions.clear()
        self.questions.clear()
        self.machine = SchedulerMachine("rte-scheduler", **self.options)
        self.machine.listeners.extend(self.listeners)
        self.listeners = self.machine.listeners
        self.handle(messages.Tick())
        for (collection, _), obj in list(self.objects.items()):
            self.handle(messages.Seen(collection, obj))
        for collection in {kind for kind, _ in self.objects}:
            keys = frozenset(key for kind, key in self.objects if kind == collection)
            self.handle(messages.Listed(collection, keys, self.version))
        self.handle(messages.Leading(active=True))

    # --- the API ---

    def put(self, collection: str, key: str, obj: dict[str, Any]) -> None:
        """Create or change an object, and let the watch tell."""
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self.objects[collection, key] = {**obj, "metadata": metadata}
        self.tell(messages.Seen(collection, self.objects[collection, key]))

    def tell(self, event: messages.Seen | messages.Gone) -> None:
        """The watch of a collection has something new."""
        self.handle(event)

    def delete(self, collection: str, key: str) -> None:
        self.objects.pop((collection, key), None)
        self.tell(messages.Gone(collection, key))

    def node(self, name: str, reported: NodeState | None = None, **options: Any) -> None:
        """A node with this report, or without any (``bare``)."""
        bare = options.pop("bare", False)
        reported = None if bare else reported or state()
        cpus = len(reported.topology.cpus) - 1 if reported else 16
        gib = sum(z.memory_bytes for z in reported.topology.zones) // GIB - 1 if reported else 31
        allocatable = {"cpu": str(cpus), "memory": f"{gib}Gi", **options.pop("allocatable", {})}
        self.put("nodes", name, node_object(name, allocatable, **options))
        if reported is not None:
            self.kubelets[name] = reported
            self.report(name)

    def label(self, name: str, **labels: str) -> None:
        obj = self.objects["nodes", name]
        metadata = {**obj["metadata"], "labels": {**obj["metadata"]["labels"], **labels}}
        self.put("nodes", name, {**obj, "metadata": metadata})

    def report(self, name: str) -> None:
        """The agent publishes what the kubelet has now."""
        self.put("reports", name, report_of(name, self.kubelets[name]))

    def pod(self, name: str = "", cpu: Any = "2", **options: Any) -> str:
        """A pod; its UID."""
        obj = pod_object(name, cpu, **options)
        self.put("pods", obj["metadata"]["uid"], obj)
        return str(obj["metadata"]["uid"])

    def change(self, uid: str, **status: Any) -> None:
        obj = self.objects["pods", uid]
        self.put("pods", uid, {**obj, "status": {**(obj.get("status") or {}), **status}})

    def begin_to_end(self, uid: str) -> None:
        obj = self.objects["pods", uid]
        metadata = {**obj["metadata"], "deletionTimestamp": "2026-01-01T01:00:00Z"}
        self.put("pods", uid, {**obj, "metadata": metadata})

    def end(self, uid: str) -> None:
        """The kubelet has let go of the pod, and the API shows it gone."""
        name = self.where(uid)
        if name in self.kubelets:
            kubelet = self.kubelets[name]
            active = kubelet.admitted - {uid}
            self.kubelets[name] = replace(placement.settle(kubelet, active), admitted=active)
        self.delete("pods", uid)
        if name in self.kubelets and ("nodes", name) in self.objects:
            self.report(name)

    def where(self, uid: str) -> str:
        return str(self.objects["pods", uid]["spec"].get("nodeName") or "")

    # --- kubelets ---

    def admit(self, uid: str) -> str:
        """The kubelet meets a pod that was bound to it; its reason, if it refuses."""
        name = self.where(uid)
        kubelet = self.kubelets[name]
        view = self.view(uid)
        admission = placement.admit(kubelet, view.shape.as_pod(uid))
        if admission.verdict != "admitted":
            self.kubelets[name] = admission.state
            self.refuse(uid, admission.reason)
            return str(admission.reason)
        admitted = admission.state.admitted | {uid}
        self.kubelets[name] = replace(admission.state, admitted=admitted)
        self.change(uid, phase="Running", startTime=moment())
        self.report(name)
        return ""

    def refuse(self, uid: str, reason: str = "TopologyAffinityError") -> None:
        message = "Pod was rejected: Resources cannot be allocated with Topology locality"
        self.change(uid, phase="Failed", reason=reason, message=message)

    def run_all(self) -> None:
        """Every kubelet with a report meets what is bound to it."""
        for uid in self.bound():
            name = self.where(uid)
            if name in self.kubelets and uid not in self.kubelets[name].admitted:
                assert self.admit(uid) == "", uid

    def bound(self) -> list[str]:
        pods = [(key, obj) for (kind, key), obj in self.objects.items() if kind == "pods"]
        return [
            key
            for key, obj in pods
            if obj["spec"].get("nodeName")
            and obj["status"].get("phase") not in ("Failed", "Succeeded")
        ]

    def view(self, uid: str) -> PodView:
        return self.machine.cluster.pods[uid]

    # --- the machine ---

    def handle(self, event: Event) -> None:
        """Give the machine an event, then all turns that it wants."""
        self._carry_out(self.machine.handle(event, self.now))
        for _ in range(self.turns):
            while self.solves and self.questions:
                self.solve()
            if not self.machine.has_work():
                return
            self._carry_out(self.machine.handle(messages.Turn(), self.now))
        assert self.turns < 10_000, "the machine does not come to rest"

    def pass_time(self, seconds: float) -> None:
        """Let time go by; each deadline is met when it is due."""
        end = self.now + seconds
        while (due := self.machine.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.handle(messages.Tick())
        self.now = end

    def _carry_out(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, messages.Bind):
                self.binds.append(effect)
            elif isinstance(effect, messages.Evict):
                self.evictions.append(effect)
            elif isinstance(effect, messages.TakeBack):
                self.undoing.append(effect)
            elif isinstance(effect, messages.Solve):
                self.questions.append(effect)
            elif isinstance(effect, messages.ReleaseGang):
                for pod in effect.pods:
                    if ("pods", pod.uid) in self.objects:
                        self.begin_to_end(pod.uid)
            elif isinstance(effect, Measured):
                effect.note(_METRICS)
                assert self.faulty or effect.metric != "faults", self.machine.quarantine.effects
            elif isinstance(effect, Said):
                effect.say(_LOGGER)
        if self.answers:
            while self.binds:
                self.bind(self.binds.pop(0))
            while self.evictions:
                self.evict(self.evictions.pop(0))
            while self.undoing:
                self.take_back(self.undoing.pop(0))

    def bind(self, effect: messages.Bind, *, answer: bool = True) -> None:
        """The API binds the pod, if it can; the answer may be lost."""
        uid = effect.pod.uid
        if ("pods", uid) not in self.objects:
            self._answer(Bound(uid, Outcome.GONE))
            return
        if self._write(effect):
            return
        obj = self.objects["pods", uid]
        at = obj["spec"].get("nodeName")
        assert not at, f"{uid} was bound twice"
        if answer:
            self._answer(Bound(uid, Outcome.BOUND))
        metadata = obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **effect.annotations}
        text = effect.annotations.get(allocation.ANNOTATION, "")
        status = {**(obj.get("status") or {}), **({"conditions": recorded(text)} if text else {})}
        self.put(
            "pods",
            uid,
            {
                **obj,
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**obj["spec"], "nodeName": effect.node},
                "status": status,
            },
        )

    def _write(self, effect: messages.Bind) -> str:
        """Carry out what stands before the bind; why it cannot be, then all is undone."""
        for write in effect.writes:
            while (step := write.next(self._found(write.target) or write.known)) is not None:
                if not isinstance(step, Step):
                    self._undo(effect.writes)
                    self._answer(Bound(effect.pod.uid, Outcome.REFUSED, message=step.why))
                    return step.why
                self._apply(write.target, step)
        return ""

    def take_back(self, effect: messages.TakeBack) -> None:
        """What a pod holds of an attempt before is undone."""
        self._undo(effect.writes)
        self._answer(messages.TakenBack(effect.pod.uid))

    def _undo(self, writes: Iterable[RequiredWrite]) -> None:
        for write in writes:
            while (step := write.undo(self._found(write.target))) is not None:
                self._apply(write.target, step)

    def _found(self, target: WriteTarget) -> dict[str, Any] | None:
        if target.collection != "pods":
            return self.objects.get((target.collection, target.key))
        pods = (obj for (kind, _), obj in self.objects.items() if kind == "pods")
        return next((obj for obj in pods if obj["metadata"]["name"] == target.name), None)

    def _apply(self, target: WriteTarget, step: Step) -> None:
        found = self._found(target)
        key = target.key
        if found is not None and target.collection == "pods":
            key = found["metadata"]["uid"]
        if step.verb == "delete":
            self.delete(target.collection, key)
        else:
            self.put(target.collection, key, merge(found or {}, step.body))

    def _answer(self, event: Event) -> None:
        self._carry_out(self.machine.handle(event, self.now))

    def solve(self) -> None:
        """The solver answers what it was asked first."""
        asked = self.questions.pop(0)
        self._answer(messages.Solved(asked.number, asked.question.find_out()))

    def evict(self, effect: messages.Evict) -> None:
        """The API marks the victims; they end when the test says so."""
        for victim in effect.victims:
            if ("pods", victim.uid) in self.objects:
                self.begin_to_end(victim.uid)
        self._answer(messages.Evicted(effect.pod.uid, effect.victims, complete=True))

    def told(self, kind: type[Any]) -> Iterator[Any]:
        return (effect for effect in self.effects if isinstance(effect, kind))


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch (RFC 7386)."""
    out = dict(target)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, dict):
            known = out.get(name)
            out[name] = merge(known if isinstance(known, dict) else {}, value)
        else:
            out[name] = value
    return out


def report_of(name: str, reported: NodeState) -> dict[str, Any]:
    """The NRT that an agent would publish."""
    shape = reported.topology
    hardware = Hardware(
        cpus=tuple(
            CPU(id=c.cpu, core=c.core, die=0, socket=c.socket, zone=c.zone) for c in shape.cpus
        ),
        zones=tuple(
            Zone(id=z.id, cpus=shape.zone_cpus[z.id], memory_bytes=z.memory_bytes)
            for z in shape.zones
        ),
    )
    return nrt.encode(NodeReading(node_name=name, machine=hardware, state=reported))
