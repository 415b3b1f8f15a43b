"""Whatever else waits: who fits has a turn soon, and an event decides no more than it can help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rte.scheduler.loop import messages
from rte.telemetry.effects import Measured
from tests.depth import scaled
from tests.unit.scheduler import gpus
from tests.unit.scheduler.build import moment, pod_object
from tests.unit.scheduler.gangs.build import Square
from tests.unit.scheduler.test_volumes import claim, storage_class, volume

if TYPE_CHECKING:
    from collections.abc import Callable

#: A pod that fits everywhere is bound within so many decisions.
BAR = 50

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


class Crowd(Square):
    """Plain nodes of 16 CPUs with half a CPU left, on which small jobs run."""

    def __init__(self, nodes: int = 20, **options: Any) -> None:
        super().__init__(0, **options)
        self.names = [f"n{number}" for number in range(nodes)]
        for name in self.names:
            self.node(name, bare=True)
            self.runs(f"filler-{name}", "14500m", name)
            self.runs(f"job-{name}", "1", name)
        self.put("classes", "local", storage_class())
        self.put("device-classes", "gpu", gpus.gpu_class())
        self.storms = self.looked_at = self.counted = 0

    def runs(self, name: str, cpu: str, node: str, **options: Any) -> str:
        return self.pod(
            name, cpu, guaranteed=False, node_name=node, status={"phase": "Running"}, **options
        )

    def waits(self, name: str, cpu: str = "100m", **options: Any) -> str:
        return self.pod(name, cpu, guaranteed=False, **options)

    def decisions(self) -> int:
        """How many there were, and how many questions to the solver."""
        fresh, self.looked_at = self.effects[self.looked_at :], len(self.effects)
        self.counted += sum(
            isinstance(each, messages.Solve)
            or (isinstance(each, Measured) and each.metric == "attempts")
            for each in fresh
        )
        return self.counted

    def storm(self) -> None:
        """What happens all the time: pods end and come, volumes and claims change."""
        self.storms += 1
        name = self.names[self.storms % len(self.names)]
        with_turns, self.turns = self.turns, 0
        if ("pods", f"uid-job-{name}") in self.objects:
            self.delete("pods", f"uid-job-{name}")
        else:
            self.runs(f"job-{name}", "1", name)
        number = {"annotations": {"n": str(self.storms)}}
        self.put("claims", "other/x", claim("x", meta={"namespace": "other", **number}))
        self.put("volumes", f"free-{self.storms % 5}", volume(f"free-{self.storms % 5}", "full"))
        self.put("device-claims", "other/d", gpus.claim("d", uid="d", **number))
        self.turns = with_turns


def wait_for_volumes(desk: Crowd) -> None:
    """Each for a volume that can be reached from a full node alone; and for any free one."""
    desk.node("full", bare=True)
    desk.runs("filler-full", "16", "full")
    for number in range(100):
        made = volume(f"v{number}", "full")
        bound = {**made, "status": {"phase": "Bound"}}
        desk.put("volumes", f"v{number}", bound if number % 2 else made)
    for number in range(100):
        name = f"w{number}"
        named = {"spec": {"volumeName": f"v{number}"}, "status": {"phase": "Bound"}}
        desk.put("claims", f"default/{name}", claim(name, **(named if number % 2 else {})))
        used = {"name": name, "persistentVolumeClaim": {"claimName": name}}
        desk.waits(name, volumes=[used])


def wait_for_devices(desk: Crowd) -> None:
    """Each wants more devices than a node has."""
    for name in desk.names:
        desk.put("slices", f"{name}-gpus", gpus.slice_of(name))
    for number in range(100):
        name = f"c{number}"
        wanted = gpus.claim(name, 5 + number % 20, uid=name)
        desk.put("device-claims", f"default/{name}", wanted)
        desk.waits(name, **gpus.uses(name))


def wait_together(desk: Crowd) -> None:
    """Gangs, some with soft terms."""
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": HOST}
    liked = {"podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": term}]}}
    for number in range(20):
        desk.group(f"g{number}", 4)
        options = {"affinity": liked} if number % 2 else {}
        desk.members(f"g{number}", ["1200m"] * 4, guaranteed=False, **options)


def wait_apart(desk: Crowd) -> None:
    """Pods with soft and with hard terms, for a node that nobody has."""
    for number in range(100):
        term = {"labelSelector": {"matchLabels": {"a": str(number)}}, "topologyKey": HOST}
        affinity: dict[str, Any] = {
            "podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": term}]}
        }
        if number % 2:
            affinity["podAffinity"] = {HARD: [term]}
        desk.waits(f"a{number}", "2", affinity=affinity)


def wait_for_room(desk: Crowd) -> None:
    """Ten thousand of two thousand shapes; a job that ends may help each of some hundreds."""
    for number in range(scaled(10_000)):
        desk.waits(f"p{number}", f"{600 + number % 2000}m")


def wait_for_all(desk: Crowd) -> None:
    for each in (wait_for_volumes, wait_for_devices, wait_together, wait_apart):
        each(desk)


@pytest.mark.parametrize(
    "mix",
    [
        wait_for_volumes, wait_for_devices, wait_together, wait_apart, wait_for_room, wait_for_all,
    ],
)  # fmt: skip
def test_who_fits_everywhere_is_soon_bound_whatever_waits(mix: Callable[[Crowd], None]) -> None:
    desk = Crowd(preempts=False)
    mix(desk)
    desk.pass_time(5.0)
    desk.turns = desk.storms = 0
    for number in range(3):
        for _ in range(4):
            desk.storm()
        name, before = f"new-{number}", desk.decisions()
        # Younger than all that wait, and of nobody's kind.
        made = pod_object(name, f"{101 + number}m", guaranteed=False)
        made["metadata"]["creationTimestamp"] = "2027-01-01T00:00:00Z"
        desk.put("pods", f"uid-{name}", made)
        turns = 0
        while not desk.where(f"uid-{name}"):
            desk._carry_out(desk.machine.handle(messages.Turn(), desk.now))
            turns += 1
            if turns % 5 == 0:
                desk.storm()
            while desk.questions and turns % 3 == 0:
                desk.solve()
            assert desk.decisions() - before <= BAR, mix.__doc__
            assert turns <= 4 * BAR


def test_old_and_new_take_turns() -> None:
    """Who has waited is not behind all who come, either."""
    desk = Crowd(1, preempts=False)
    old = desk.waits("old", "1")
    desk.pass_time(5.0)
    desk.answers, desk.turns = False, 0
    for number in range(20):
        desk.waits(f"new-{number}", f"{1000 + number}m")
    desk.delete("pods", "uid-job-n0")
    for _ in range(2):
        desk._carry_out(desk.machine.handle(messages.Turn(), desk.now))
    assert [bind.pod.uid for bind in desk.binds] == [old]


def test_room_is_made_before_the_less_important_have_a_turn() -> None:
    desk = Square(0)
    for number in range(4):
        desk.node(f"n{number}", bare=True)
        desk.pod(
            f"low-{number}", "16", guaranteed=False, node_name=f"n{number}",
            status={"phase": "Running", "startTime": moment()},
        )  # fmt: skip
    desk.answers, desk.turns = False, 0
    desk.pod("high", "8", guaranteed=False, priority=1000)
    for number in range(100):
        desk.pod(f"q{number}", f"{100 + number}m", guaranteed=False, priority=1)
    turns = 0
    while not desk.evictions:
        desk._carry_out(desk.machine.handle(messages.Turn(), desk.now))
        turns += 1
        assert turns <= 10
    assert desk.evictions[0].pod.name == "high"


# --- no event decides more than those whom it can help


def _decided(desk: Crowd, change: Callable[[], None]) -> int:
    desk.pass_time(20.0)
    before = desk.decisions()
    change()
    desk.pass_time(0.0)
    return desk.decisions() - before


def test_an_event_decides_about_those_alone_whom_it_can_help() -> None:
    desk = Crowd(preempts=False)
    wait_for_all(desk)
    strange = volume("strange", "n1", claimRef={"namespace": "other", "name": "x"})
    nobody: dict[str, Callable[[], None]] = {
        "a claim of others": lambda: desk.put(
            "claims", "other/x", claim("x", meta={"namespace": "other"})
        ),
        "their volume": lambda: desk.put("volumes", "strange", strange),
        "a volume of no use": lambda: desk.put(
            "volumes", "fast", volume("fast", storageClassName="fast")
        ),
        "a claim of devices": lambda: desk.put(
            "device-claims", "other/d", gpus.claim("d", uid="d")
        ),
        "devices that are given away": lambda: desk.put(
            "device-claims",
            "other/d",
            {
                **gpus.claim("d", uid="d"),
                "status": {"allocation": {"devices": {"results": [
                    {"request": "gpu", "driver": gpus.DRIVER, "pool": "n1", "device": "gpu-0"}
                ]}}},
            },
        ),
        "a pod that ends": lambda: desk.delete("pods", "uid-job-n1"),
    }  # fmt: skip
    assert {what: _decided(desk, change) for what, change in nobody.items()} == dict.fromkeys(
        nobody, 0
    )
    own = claim("w1", spec={"volumeName": "v1"}, status={"phase": "Bound"}, meta={"labels": {}})
    assert _decided(desk, lambda: desk.put("claims", "default/w1", own)) == 1
    freed = gpus.claim("d", uid="d")
    # Devices are free again: that may help everybody who wants some.
    assert _decided(desk, lambda: desk.put("device-claims", "other/d", freed)) == 100


def test_replicas_are_one_kind_whatever_labels_nobody_looks_at() -> None:
    index = "apps.kubernetes.io/pod-index"
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}
    liked = {"podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": term}]}}
    desk = Crowd(preempts=False)
    for number in range(50):
        labels = {"app": "x", index: str(number)}
        desk.waits(f"plain-{number}", "4", labels=labels)
        desk.waits(f"soft-{number}", "4", labels=labels, affinity=liked)
    assert desk.machine.queue.shapes() == 2

    def hermit(name: str, label: str) -> None:
        selector = {"matchLabels": {label: "0"}}
        apart = {"podAntiAffinity": {HARD: [{"labelSelector": selector, "topologyKey": HOST}]}}
        desk.runs(name, "0", "n0", affinity=apart)

    # One that looks at another label, and one that tells the first replica from the others.
    assert _decided(desk, lambda: hermit("far", "elsewhere")) == 0
    assert desk.machine.queue.shapes() == 2
    assert _decided(desk, lambda: hermit("near", index)) == 0
    assert desk.machine.queue.shapes() == 100
    assert _decided(desk, lambda: desk.delete("pods", "uid-near")) == 0
    assert desk.machine.queue.shapes() == 2
    desk.delete("pods", "uid-filler-n3")
    assert sum(1 for uid in desk.bound() if desk.where(uid) == "n3") == 1 + 3


def test_a_bind_that_failed_is_told_and_decided_anew_after_a_pause() -> None:
    desk = Crowd(2, preempts=False)
    desk.answers = False
    uid = desk.waits("p")
    pauses = []
    for _ in range(3):
        (bind,) = desk.binds
        desk.binds.clear()
        failed = messages.Bound(uid, messages.Outcome.FAILED, message="webhook is down")
        desk._answer(failed)
        at = desk.now
        while not desk.binds:
            desk.pass_time(0.05)
        pauses.append(round(desk.now - at, 1))
    assert pauses == [0.1, 0.2, 0.4]
    told = [each for each in desk.told(messages.Post) if each.reason == "FailedBinding"]
    assert [each.note for each in told] == ["webhook is down"] * 3
    counted = [each for each in desk.told(Measured) if each.metric == "binds"]
    assert {each.labels for each in counted} == {("failed",)}
    desk.bind(bind)
    assert desk.where(uid)
