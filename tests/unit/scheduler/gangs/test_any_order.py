"""Gangs through whatever happens, in any order: never begun in part, and nobody is forgotten."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from rte.scheduler.loop import messages
from rte.scheduler.loop.messages import Bound, Outcome
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.gangs.build import MARKS, Square

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(int(os.environ.get("RTE_ROUNDS", "16")))
STEPS = 60
SOURCES = sorted(MARKS)


class Gang:
    """What the player knows of a gang.

    Attributes:
        plain: nothing has happened since its first pod that could leave it in part.
    """

    def __init__(self, name: str, source: str, count: int, priority: int) -> None:
        self.name, self.source, self.count, self.priority = name, source, count, priority
        self.plain = True
        self.uids: list[str] = []

    @property
    def key(self) -> tuple[str, str]:
        """The object that describes it."""
        prefix = "w-" if self.source == "workloads-1.35" else ""
        return self.source, f"default/{prefix}{self.name}"


class Player:
    """Plays random events. A pod ends, is refused or goes only where the API would let it."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.desk = Square(self.random.randint(1, 3), **options)
        self.gangs: list[Gang] = []
        self.serial = 0
        self.moves: list[Callable[[], None]] = [
            *[self.gang] * 2,
            *[self.members] * 4,
            *[self.single] * 3,
            *[self.describe] * 2,
            self.undescribe,
            *[self.bind] * 3,
            self.fail,
            *[self.admit] * 2,
            *[self.end] * 2,
            self.delete,
            self.refuse,
            self.gate,
            self.open_gate,
            self.cordon,
            self.new_node,
            self.lose_node,
            self.nominate,
            self.restart,
            self.wait,
            self.switch,
        ]

    def step(self) -> None:
        """One event, and what follows from it at once."""
        self.random.choice(self.moves)()
        self.desk.handle(messages.Tick())

    def next(self) -> int:
        """A number that was not used yet."""
        self.serial += 1
        return self.serial

    def pods(self) -> list[str]:
        return [key for kind, key in self.desk.objects if kind == "pods"]

    def waiting(self) -> list[str]:
        return [uid for uid in self.pods() if not self.desk.where(uid)]

    def nodes(self) -> list[str]:
        return [key for kind, key in self.desk.objects if kind == "nodes"]

    def to_admit(self) -> list[str]:
        kubelets, where = self.desk.kubelets, self.desk.where
        return [
            uid
            for uid in self.desk.bound()
            if where(uid) in kubelets and uid not in kubelets[where(uid)].admitted
        ]

    def disturb(self, uid: str) -> None:
        for gang in self.gangs:
            gang.plain = gang.plain and uid not in gang.uids

    def forget(self, uid: str) -> None:
        self.disturb(uid)
        for gang in self.gangs:
            gang.uids = [each for each in gang.uids if each != uid]

    # --- gangs and pods ---

    def gang(self) -> None:
        if len(self.gangs) < 4:
            source, count = self.random.choice(SOURCES), self.random.randint(1, 4)
            priority = self.random.choice((0, 0, 10))
            self.gangs.append(Gang(f"g{self.next()}", source, count, priority))
            if self.random.random() < 0.7:
                self.desk.group(self.gangs[-1].name, count, source)

    def describe(self) -> None:
        """The description comes late, or says another number."""
        if self.gangs:
            gang = self.random.choice(self.gangs)
            if gang.key in self.desk.objects and gang.source != "koordinator":
                gang.count, gang.plain = self.random.randint(1, 4), False
            self.desk.group(gang.name, gang.count, gang.source)

    def undescribe(self) -> None:
        gang = self.random.choice(self.gangs) if self.gangs else None
        if gang is not None and gang.key in self.desk.objects:
            gang.plain = False
            self.desk.delete(*gang.key)

    def members(self, **options: Any) -> None:
        gang = self.random.choice(self.gangs) if self.gangs else None
        if gang is None or len(gang.uids) > 5:
            return
        for _ in range(self.random.randint(1, 3)):
            mark = MARKS[gang.source](gang.name, gang.count)
            cpus = str(self.random.choice((2, 4, 5, 7, 8)))
            merged = {"priority": gang.priority, **options, **mark}
            gang.uids.append(self.desk.pod(f"{gang.name}-{self.next()}", cpus, **merged))

    def gate(self) -> None:
        self.members(schedulingGates=[{"name": "later"}])

    def open_gate(self) -> None:
        for uid in self.waiting():
            obj = self.desk.objects["pods", uid]
            if obj["spec"].get("schedulingGates"):
                self.desk.put("pods", uid, {**obj, "spec": {**obj["spec"], "schedulingGates": []}})
                return

    def single(self) -> None:
        if len(self.pods()) < 30:
            cpus, priority = self.random.choice((1, 2, 4, 7)), self.random.choice((0, 0, 5, 20))
            self.desk.pod(f"s{self.next()}", str(cpus), priority=priority)

    def delete(self) -> None:
        if waiting := self.waiting():
            uid = self.random.choice(waiting)
            self.desk.delete("pods", uid)
            self.forget(uid)

    def nominate(self) -> None:
        """Somebody else makes room, or does not any more."""
        if waiting := self.waiting():
            node = self.random.choice([*self.nodes(), None])
            self.desk.change(self.random.choice(waiting), nominatedNodeName=node)

    # --- binds and kubelets ---

    def bind(self) -> None:
        if self.desk.binds:
            effect = self.desk.binds.pop(self.random.randrange(len(self.desk.binds)))
            self.desk.bind(effect, answer=self.random.random() < 0.8)

    def fail(self) -> None:
        if self.desk.binds:
            uid = self.desk.binds.pop().pod.uid
            self.disturb(uid)
            known = ("pods", uid) in self.desk.objects
            self.desk.handle(Bound(uid, Outcome.REFUSED if known else Outcome.GONE))

    def admit(self) -> None:
        if found := self.to_admit():
            assert self.desk.admit(self.random.choice(found)) == ""

    def refuse(self) -> None:
        """A device plugin is gone, say."""
        if found := self.to_admit():
            uid = self.random.choice(found)
            self.disturb(uid)
            self.desk.refuse(uid, "UnexpectedAdmissionError")

    def end(self) -> None:
        admitted = {uid for kubelet in self.desk.kubelets.values() for uid in kubelet.admitted}
        if found := [uid for uid in self.desk.bound() if uid in admitted]:
            uid = self.random.choice(found)
            if self.random.random() < 0.5:
                self.desk.begin_to_end(uid)
            self.desk.end(uid)
            self.forget(uid)

    # --- nodes, replicas and time ---

    def cordon(self) -> None:
        if self.nodes():
            name = self.random.choice(self.nodes())
            obj = self.desk.objects["nodes", name]
            closed = not obj["spec"]["unschedulable"]
            self.desk.put("nodes", name, {**obj, "spec": {**obj["spec"], "unschedulable": closed}})

    def new_node(self) -> None:
        """Its report is there before it is opened."""
        if len(self.nodes()) < 4:
            name = f"x{self.next()}"
            self.desk.node(name, state(machine(cpus=8)), unschedulable=True)
            obj = self.desk.objects["nodes", name]
            self.desk.put("nodes", name, {**obj, "spec": {**obj["spec"], "unschedulable": False}})

    def lose_node(self) -> None:
        """With all its pods; binds to it fail."""
        if self.random.random() < 0.7 or not self.nodes():
            return
        name = self.random.choice(self.nodes())
        self.desk.delete("nodes", name)
        self.desk.delete("reports", name)
        del self.desk.kubelets[name]
        for uid in [uid for uid in self.pods() if self.desk.where(uid) == name]:
            self.desk.delete("pods", uid)
            self.forget(uid)
        for effect in [each for each in self.desk.binds if each.node == name]:
            self.desk.binds.remove(effect)
            self.disturb(effect.pod.uid)
            known = ("pods", effect.pod.uid) in self.desk.objects
            self.desk.handle(Bound(effect.pod.uid, Outcome.REFUSED if known else Outcome.GONE))

    def restart(self) -> None:
        for effect in self.desk.binds:
            self.disturb(effect.pod.uid)
        self.desk.restart()

    def wait(self) -> None:
        self.desk.pass_time(self.random.choice((0.5, 2.0, 15.0, 70.0)))

    def switch(self) -> None:
        """The API answers at once, or takes its time."""
        self.desk.answers = not self.desk.answers
        self.desk._carry_out([])

    # --- what has to hold ---

    def in_part(self, gang: Gang) -> bool:
        known = self.desk.machine.cluster.assumed
        there = [uid for uid in gang.uids if ("pods", uid) in self.desk.objects]
        placed = [uid for uid in there if self.desk.where(uid) or uid in known]
        return 0 < len(placed) < min(gang.count, len(there))

    def settle(self) -> None:
        """Binds are answered, kubelets and agents do their work, nominations of others end."""
        self.desk.answers = True
        self.desk._carry_out([])
        for uid in self.waiting():
            self.desk.change(uid, nominatedNodeName=None)
        for _ in range(20):
            for uid in self.pods():
                leaves = "deletionTimestamp" in self.desk.objects["pods", uid]["metadata"]
                if leaves and self.desk.where(uid):
                    self.desk.end(uid)
                    self.forget(uid)
            for uid in self.to_admit():
                assert self.desk.admit(uid) == "", uid
            for name in self.desk.kubelets:
                # Any other report would wake who was forgotten.
                if self.desk.machine.cluster.nodes[name].held_off:
                    self.desk.report(name)
                    self.desk.handle(messages.Reread(name))
            self.desk.pass_time(12.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_gang_begins_in_part_and_nobody_waits_who_would_be_placed(seed: int) -> None:
    player = Player(seed, preempts=False)
    for _ in range(STEPS):
        player.step()
        for gang in player.gangs:
            assert not gang.plain or not player.in_part(gang), gang.name
    player.settle()
    if any(map(player.in_part, player.gangs)):
        # Which of its pods have run is not known after a restart.
        return
    waiting = set(player.waiting())
    player.desk.restart()
    player.settle()
    assert set(player.waiting()) >= waiting, "who begins anew finds places for them"
