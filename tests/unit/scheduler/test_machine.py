"""The machine in every weather: late, doubled, reordered and cut watches, binds without an answer,
leases lost, kubelets that refuse, nodes that vanish.

After each step nothing was bound twice, and nothing that was called certain was refused by the
kubelet's own rules; when all is quiet no pod waits that fits, and no nomination, reservation or
memory is left without a living reason.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rte import placement
from rte.scheduler.loop import messages
from rte.scheduler.loop.gangs import decide
from rte.scheduler.loop.messages import Bound, Outcome
from tests.depth import scaled
from tests.unit.scheduler.build import machine, moment, state
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from random import Random

    from rte.k8s.gang import GangKey
    from rte.model.pod import Pod
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.loop.gangs.decide import Asking

T = TypeVar("T")

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
COLLECTIONS = ("pods", "nodes", "reports", "podgroups")

#: Nodes that are read in one turn for a gang; one at a time in this weather.
_AT_ONCE = decide.NODES_AT_ONCE

#: Seconds after which a gang in part is released.
GANG_TIMEOUT_S = 60.0


class Storm(Desk):
    """The API tells nothing at once: each collection has a backlog of events."""

    def __init__(self, **options: Any) -> None:
        self.backlog: dict[str, deque[messages.Seen | messages.Gone]] = {
            name: deque() for name in COLLECTIONS
        }
        self.last: dict[str, messages.Seen | messages.Gone] = {}
        #: Pods that went to nodes of which the zones were not known.
        self.guesses: set[str] = set()
        super().__init__(**options)
        self.answers = False

    def tell(self, event: messages.Seen | messages.Gone) -> None:
        self.backlog[event.collection].append(event)

    def _carry_out(self, effects: list[messages.Effect]) -> None:
        super()._carry_out(effects)
        for effect in effects:
            if not isinstance(effect, messages.Bind):
                continue
            if effect.pod.gang is not None:
                self.check_whole(effect.pod.gang)
            if self.machine.cluster.nodes[effect.node].knowledge() != "exact":
                self.guesses.add(effect.pod.uid)

    def meets(self, uid: str, pod: Pod) -> None:
        """The kubelet meets a pod that was bound to it; it tells of it later."""
        name = self.where(uid)
        admission = placement.admit(self.kubelets[name], pod)
        if admission.verdict != "admitted":
            assert uid in self.guesses, (uid, name, admission.reason)
            self.refuse(uid, admission.reason)
            return
        admitted = admission.state.admitted | {uid}
        self.kubelets[name] = replace(admission.state, admitted=admitted)
        self.change(uid, phase="Running", startTime=moment())

    def check_whole(self, key: GangKey) -> None:
        """Binds of a gang are for as many pods as it needs, as far as the machine knows."""
        cluster = self.machine.cluster
        pods, gang = cluster.gangs.pods.get(key, {}).values(), cluster.gangs.gang(key)
        if isinstance(gang, str):
            return
        placed = [pod for pod in pods if pod.uid in cluster.assumed or pod.node]
        ended = cluster.gangs.ended.get(key, ())
        assert len(placed) + len(ended) >= (gang.min_count or 0)

    def deliver(self, collection: str) -> None:
        event = self.last[collection] = self.backlog[collection].popleft()
        self.handle(event)

    def relist(self, collection: str) -> None:
        """The watch was cut: what it had not told is lost, and a list takes its place."""
        self.backlog[collection].clear()
        items = {key: obj for (kind, key), obj in self.objects.items() if kind == collection}
        for obj in list(items.values()):
            self.handle(messages.Seen(collection, obj))
        self.handle(messages.Listed(collection, frozenset(items), self.version))

    def calm(self) -> None:
        for name in COLLECTIONS:
            while self.backlog[name]:
                self.deliver(name)


_PODS = st.tuples(
    st.sampled_from(["1", "2", "3", "5"]),
    st.sampled_from([0, 0, 0, 10]),
    st.sampled_from(["pinned", "pinned", "shared", "near", "apart", "spread"]),
)


class Weather(RuleBasedStateMachine):
    """Rules are what may happen at any time; hypothesis finds the order."""

    def __init__(self) -> None:
        super().__init__()
        decide.NODES_AT_ONCE = 1
        self.desk = Storm(reserve_after=30.0, gang_timeout=GANG_TIMEOUT_S)
        self.number = 0
        self.gangs: dict[str, int] = {}
        self.whole: set[str] = set()
        self.kills = 0
        self.nodes = 0
        self.by_us: set[str] = set()
        self.ended: dict[str, str] = {}

    @initialize(zones=st.sampled_from([1, 2]), wanted=st.lists(_PODS, max_size=10))
    def begin(self, zones: int, wanted: list[tuple[str, int, str]]) -> None:
        for _ in range(2):
            self.add_node(zones)
        self.desk.node("bare", bare=True, allocatable={"cpu": "3"}, labels={"zone": "bare"})
        self.desk.calm()
        self.create(wanted)

    def add_node(self, zones: int) -> None:
        name = f"n{self.nodes}"
        self.nodes += 1
        self.desk.node(name, state(machine(zones=zones, cpus=6)), labels={"zone": name})

    # --- what users and kubelets do ---

    @rule(wanted=st.lists(_PODS, min_size=1, max_size=6))
    def users_create(self, wanted: list[tuple[str, int, str]]) -> None:
        self.create(wanted)

    def create(self, wanted: list[tuple[str, int, str]]) -> None:
        for each in wanted:
            self.create_one(*each)

    def create_one(self, cpu: str, priority: int, kind: str) -> None:
        self.number += 1
        options: dict[str, Any] = {"priority": priority, "labels": {"app": kind}}
        term = {"labelSelector": {"matchLabels": {"app": "pinned"}}, "topologyKey": "zone"}
        if kind == "near":
            options["affinity"] = {"podAffinity": {HARD: [term]}}
        elif kind == "apart":
            term = {**term, "labelSelector": {"matchLabels": {"app": "apart"}}}
            options["affinity"] = {"podAntiAffinity": {HARD: [term]}}
        elif kind == "spread":
            options["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "zone",
                 "labelSelector": {"matchLabels": {"app": "spread"}}}
            ]  # fmt: skip
        guaranteed = kind not in ("shared", "near")
        self.desk.pod(f"p{self.number}", cpu, guaranteed=guaranteed, mem="64Mi", **options)

    @rule(
        cpus=st.lists(st.sampled_from(["1", "2", "3", "5"]), min_size=1, max_size=4),
        few=st.booleans(),
        late=st.booleans(),
    )
    def users_create_a_gang(self, cpus: list[str], few: bool, late: bool) -> None:
        """All of its pods are needed, or one less; the PodGroup may come last."""
        name = f"g{len(self.gangs)}"
        self.gangs[name] = max(1, len(cpus) - few)
        if not late:
            self.describe(name)
        for cpu in cpus:
            self.join(name, cpu)
        if late:
            self.describe(name)

    def describe(self, name: str) -> None:
        policy = {"gang": {"minCount": self.gangs[name]}}
        metadata = {"name": name, "namespace": "default"}
        group = {"metadata": metadata, "spec": {"schedulingPolicy": policy}}
        self.desk.put("podgroups", f"default/{name}", group)

    def join(self, name: str, cpu: str) -> None:
        self.number += 1
        group = {"podGroupName": name}
        self.desk.pod(f"p{self.number}", cpu, mem="64Mi", schedulingGroup=group)

    @precondition(lambda self: self.gangs)
    @rule(rng=st.randoms(use_true_random=False), cpu=st.sampled_from(["1", "3"]))
    def a_gang_gets_another_pod(self, rng: Random, cpu: str) -> None:
        self.join(rng.choice(sorted(self.gangs)), cpu)

    def members(self, name: str) -> list[str]:
        return [
            key
            for (kind, key), obj in self.desk.objects.items()
            if kind == "pods"
            and (obj["spec"].get("schedulingGroup") or {}).get("podGroupName") == name
        ]

    def unmet(self) -> list[str]:
        """Bound pods that their kubelet has not seen yet."""
        desk = self.desk
        return [
            uid
            for uid in desk.bound()
            if desk.where(uid) in desk.kubelets
            and uid not in desk.kubelets[desk.where(uid)].admitted
            and uid not in self.ended
        ]

    @precondition(lambda self: self.unmet())
    @rule(rng=st.randoms(use_true_random=False))
    def admit(self, rng: Random) -> None:
        """A kubelet meets its pods in any order; it tells of it later."""
        uid = rng.choice(self.unmet())
        self.desk.meets(uid, self.shape_of(self.desk.objects["pods", uid]).as_pod(uid))

    def shape_of(self, obj: dict[str, Any]) -> Shape:
        return self.desk.machine.cluster.shapes.of(copy.deepcopy(obj))

    @precondition(lambda self: self.unmet())
    @rule(rng=st.randoms(use_true_random=False))
    def refuse(self, rng: Random) -> None:
        """A kubelet refuses for reasons of its own."""
        self.desk.refuse(rng.choice(self.unmet()), "UnexpectedAdmissionError")

    @rule(rng=st.randoms(use_true_random=False))
    def publish(self, rng: Random) -> None:
        alive = [name for name in self.desk.kubelets if ("nodes", name) in self.desk.objects]
        if alive:
            self.desk.report(rng.choice(sorted(alive)))

    def running(self) -> list[str]:
        desk = self.desk
        return [
            uid
            for uid in desk.bound()
            if uid not in self.ended and (desk.where(uid) == "bare" or uid not in self.unmet())
        ]

    @precondition(lambda self: self.running())
    @rule(rng=st.randoms(use_true_random=False))
    def finish(self, rng: Random) -> None:
        """The kubelet lets go of a pod; the API does not show it yet."""
        uid = rng.choice(self.running())
        self.let_go(uid)

    def let_go(self, uid: str) -> None:
        name = self.desk.where(uid)
        self.ended[uid] = name
        if name in self.desk.kubelets:
            kubelet = self.desk.kubelets[name]
            active = kubelet.admitted - {uid}
            self.desk.kubelets[name] = replace(placement.settle(kubelet, active), admitted=active)

    @precondition(lambda self: self.ended)
    @rule()
    def show_end(self) -> None:
        uid = next(iter(self.ended))
        del self.ended[uid]
        self.desk.delete("pods", uid)

    @rule(rng=st.randoms(use_true_random=False))
    def withdraw(self, rng: Random) -> None:
        """A user deletes a pod that waits."""
        waiting = [
            key
            for (kind, key), obj in self.desk.objects.items()
            if kind == "pods" and not obj["spec"].get("nodeName")
        ]
        if waiting:
            self.desk.delete("pods", rng.choice(waiting))

    @rule(vanish=st.booleans(), zones=st.sampled_from([1, 2]))
    def machines_come_and_go(self, vanish: bool, zones: int) -> None:
        names = sorted(n for n in self.desk.kubelets if ("nodes", n) in self.desk.objects)
        if not vanish and len(names) < 4:
            self.add_node(zones)
        elif vanish and len(names) > 1:
            name = names[0]
            self.desk.delete("nodes", name)
            self.desk.delete("reports", name)
            for uid in [uid for uid in self.desk.bound() if self.desk.where(uid) == name]:
                self.ended.pop(uid, None)
                self.desk.delete("pods", uid)
            del self.desk.kubelets[name]

    # --- what the network does ---

    @rule(collection=st.sampled_from(COLLECTIONS), number=st.integers(1, 5))
    def deliver(self, collection: str, number: int) -> None:
        for _ in range(min(number, len(self.desk.backlog[collection]))):
            self.desk.deliver(collection)

    @rule(collection=st.sampled_from(COLLECTIONS))
    def double(self, collection: str) -> None:
        event = self.desk.last.get(collection)
        if isinstance(event, messages.Seen):
            self.desk.handle(event)

    @rule(collection=st.sampled_from(COLLECTIONS))
    def cut(self, collection: str) -> None:
        self.desk.relist(collection)

    @precondition(lambda self: self.desk.binds)
    @rule(how=st.sampled_from(["answered", "answered", "unanswered", "refused"]))
    def bind(self, how: str) -> None:
        effect = self.desk.binds.pop(0)
        uid = effect.pod.uid
        if how == "refused":
            self.desk._answer(Bound(uid, Outcome.REFUSED, message="no"))
            return
        self.desk.bind(effect, answer=how == "answered")
        if how == "unanswered" and ("pods", uid) in self.desk.objects:
            # It is read back, as the binder does.
            self.desk._answer(Bound(uid, Outcome.BOUND, self.desk.objects["pods", uid]))

    @precondition(lambda self: self.desk.evictions)
    @rule(lost=st.booleans())
    def evict(self, lost: bool) -> None:
        effect = self.desk.evictions.pop(0)
        if lost:
            self.desk._answer(messages.Evicted(effect.pod.uid, (), complete=False))
        else:
            self.desk.evict(effect)

    @rule()
    def the_solver_takes_its_time(self) -> None:
        self.desk.solves = False

    @precondition(lambda self: not self.desk.solves)
    @rule()
    def the_solver_answers(self) -> None:
        self.desk.solves = True
        self.desk.handle(messages.Tick())

    @rule(turns=st.sampled_from([1, 2, 10_000]))
    def there_is_time_for(self, turns: int) -> None:
        """Decisions: few between events, or as many as there are."""
        self.desk.turns = turns
        self.desk.handle(messages.Tick())

    @rule(seconds=st.sampled_from([0.2, 2.0, 15.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.desk.pass_time(seconds)
        self.reread()

    def reread(self) -> None:
        done = [effect for effect in self.desk.effects if isinstance(effect, messages.Read)]
        self.desk.effects.clear()
        for effect in done:
            report = self.desk.objects.get(("reports", effect.node))
            if report is not None:
                self.desk.handle(messages.Seen("reports", report))
            self.desk.handle(messages.Reread(effect.node))

    @rule()
    def lose_the_lease(self) -> None:
        self.desk.handle(messages.Leading(active=False))
        for effect in self.desk.binds:
            self.desk._answer(Bound(effect.pod.uid, Outcome.ABANDONED))
        self.desk.binds.clear()
        self.desk.relist("pods")
        self.desk.handle(messages.Leading(active=True))

    @rule(rng=st.randoms(use_true_random=False))
    def kill_the_scheduler(self, rng: Random) -> None:
        """Some of the binds that were under way have come through."""
        came_through = [effect for effect in self.desk.binds if rng.random() < 0.5]
        self.kills += 1
        for effect in came_through:
            obj = self.desk.objects.get(("pods", effect.pod.uid))
            if obj is not None and not obj["spec"].get("nodeName"):
                spec = {**obj["spec"], "nodeName": effect.node}
                self.desk.put("pods", effect.pod.uid, {**obj, "spec": spec})
        for backlog in self.desk.backlog.values():
            backlog.clear()
        self.desk.last.clear()
        self.desk.restart()

    # --- what must hold ---

    @invariant()
    def gangs_become_whole(self) -> None:
        self.note_whole()

    def note_whole(self) -> None:
        desk = self.desk
        for name, count in self.gangs.items():
            members = self.members(name)
            pods = [desk.objects["pods", uid] for uid in members]
            if sum(1 for pod in pods if pod["status"].get("startTime")) >= count:
                self.whole.add(name)

    @invariant()
    def promises_have_a_reason(self) -> None:
        machine = self.desk.machine
        for uid, name in machine.cluster.nominations.items():
            assert uid in machine.queue.records
            assert uid in machine.cluster.nodes[name].nominated
        for record in machine.queue:
            assert record.pod.uid in machine.cluster.pods
        for uid in machine.binding.in_force:
            assert uid in machine.cluster.assumed or uid in machine.cluster.pods or self.desk.binds

    def teardown(self) -> None:
        try:
            self.storm_passes()
        finally:
            decide.NODES_AT_ONCE = _AT_ONCE

    @rule()
    def storm_passes(self) -> None:
        """Everything arrives, every kubelet meets its pods and tells; then all must be well."""
        desk = self.desk
        desk.solves, desk.turns = True, 10_000
        desk.handle(messages.Tick())
        for _ in range(60):
            desk.calm()
            while desk.binds:
                desk.bind(desk.binds.pop(0))
            while desk.evictions:
                desk.evict(desk.evictions.pop(0))
            desk.calm()
            for uid in [
                u
                for u in desk.bound()
                if desk.objects["pods", u]["metadata"].get("deletionTimestamp")
            ]:
                if uid not in self.ended:
                    self.let_go(uid)
            while self.ended:
                self.show_end()
            for uid in self.unmet():
                desk.meets(uid, self.shape_of(desk.objects["pods", uid]).as_pod(uid))
            self.note_whole()
            for name in desk.kubelets:
                desk.report(name)
            desk.calm()
            desk.pass_time(20.0)
            self.reread()
            busy = (desk.binds, desk.evictions, self.unmet(), *desk.backlog.values())
            # A gang in part is released when its time is over.
            if not any(busy) and not desk.machine._gangs.in_part:
                break
        # The longest hold-off, reservation and back-off are over.
        machine = desk.machine
        waiting = [record.pod for record in machine.queue]
        for pod in waiting:
            if pod.gang is not None:
                assert not concluded(machine._gangs.decide(pod, desk.now)), pod.name
                continue
            problem = machine.cycle.problem(pod).reason
            around = machine.cycle.around(pod)
            fits = [
                entry.name
                for entry in machine.cluster.nodes.values()
                if entry.info is not None and not machine.cycle.check(entry, pod, around).reason
            ]
            assert problem or not fits, (pod.name, fits, machine.queue.group_of(pod.uid))
        assert not machine.cluster.assumed
        assert not machine.binding.in_force
        for uid in machine.cluster.pods:
            assert ("pods", uid) in desk.objects
        for entry in machine.cluster.nodes.values():
            assert set(entry.pods) <= set(machine.cluster.pods)
            assert set(entry.nominated) <= {pod.uid for pod in waiting}
            assert set(entry.awaited) <= {pod.kubelet_uid for pod in entry.pods.values()}
        for name, count in self.gangs.items():
            bound = [uid for uid in desk.bound() if uid in set(self.members(name))]
            due = [uid for uid in self.members(name) if uid not in bound]
            if due or not self.kills:
                # Of who is gone before a restart nothing is known after it.
                assert not bound or len(bound) >= count or name in self.whole, (name, bound)


def concluded(steps: Asking[T]) -> T:
    """What is decided, when each question is answered at once."""
    try:
        question = next(steps)
        while True:
            question = steps.send(question.find_out() if question else None)
    except StopIteration as end:
        return end.value


Weather.TestCase.settings = settings(
    max_examples=scaled(150), stateful_step_count=50, deadline=None
)
TestWeather = Weather.TestCase
