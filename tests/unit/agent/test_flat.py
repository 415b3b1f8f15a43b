"""A day of an agent on a virtual clock: what it keeps does not grow with what has happened."""

from __future__ import annotations

import gc
import sys
from collections import Counter

from rte import errors
from rte.agent.observer import messages as seen
from rte.agent.observer.known import Scope
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange, NodeObjectFacts
from rte.agent.publisher import messages as told
from rte.agent.publisher.machine import Publisher
from rte.model.kubelet import AllocatedPods, CPUManagerState, StateFiles
from rte.model.node import ConfigSource, KubeletConfig
from tests.unit.agent.test_pods import pod
from tests.unit.agent.world import machine

DAY_S = 86_400.0
#: Pods that come and go in a day.
CHANGES = 2_000


class Day:
    """A node without podresources, whose pods come and go one after the other."""

    def __init__(self) -> None:
        self.observer = Observer(Scope(node_name="n0", podresources=False))
        self.publisher = Publisher(has_lease=True)
        self.now, self.number, self.version, self.reports = 0.0, 0, 0, 0
        self.stored: dict | None = None
        self.held: str | None = None
        self.tell(seen.PodsListed(()))
        self.tell(seen.MachineRead(machine()))
        self.tell(seen.Noticed(KubeletChange.POLL, 0.0))
        self.pass_time(10.0)

    def files(self) -> StateFiles:
        held = {self.held: {"c": 0b110}} if self.held else {}
        free = machine().online & (~0b110 if self.held else ~0)
        return StateFiles(
            cpu=CPUManagerState(policy="static", default=free, entries=held),
            allocated=AllocatedPods({uid: frozenset({"c"}) for uid in held}),
            signatures=((self.number, 0, 0),),
        )

    def tell(self, event: object) -> None:
        for effect in self.observer.handle(event, self.now):
            match effect:
                case seen.ReadFiles():
                    self.tell(seen.FilesRead(self.files(), ""))
                case seen.Learn():
                    config = KubeletConfig(
                        cpu_policy="static", reserved_cpus=1, source=ConfigSource.CONFIGZ
                    )
                    facts = NodeObjectFacts(uid="u", version="v1.37.0")
                    self.tell(seen.Learnt(effect.epoch, config, facts))
                case seen.Publish():
                    self.reports += 1
                    self.tell_publisher(told.Offered(effect.observation))
        self.tell_publisher(told.Trusted(self.observer.trusted_until()))

    def tell_publisher(self, event: object) -> None:
        for effect in self.publisher.handle(event, self.now):
            match effect:
                case told.Get() if self.stored is None:
                    self.tell_publisher(told.WriteRefused(_none()))
                case told.Get():
                    self.tell_publisher(told.Stored(self.stored))
                case told.AskOwner():
                    self.tell_publisher(told.OwnerKnown("u"))
                case told.WriteReport():
                    self.version += 1
                    metadata = {**effect.body["metadata"], "resourceVersion": str(self.version)}
                    self.stored = {**effect.body, "metadata": metadata}
                    self.tell_publisher(told.Stored(self.stored))
                    self.tell_publisher(told.Watched(self.stored, str(self.version)))
                case told.Probe():
                    self.tell_publisher(told.Probed(alive=True))
                case told.Renew():
                    self.tell_publisher(told.Renewed())

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := min(self.observer.deadline(), self.publisher.deadline())) <= until:
            self.now = max(self.now, due)
            if self.observer.deadline() <= self.now:
                self.tell(seen.Tick())
            if self.publisher.deadline() <= self.now:
                self.tell_publisher(told.Tick())
        self.now = until

    def pod(self, seconds: float) -> None:
        """One comes, and goes after half of the time."""
        self.number += 1
        uid = f"pod-{self.number}"
        self.held = uid
        self.tell(seen.PodSeen(pod(uid)))
        self.tell(seen.Noticed(KubeletChange.FILES, self.now))
        self.pass_time(seconds / 2)
        self.tell(seen.PodGone(pod(uid)))
        self.held = None
        self.number += 1
        self.tell(seen.Noticed(KubeletChange.FILES | KubeletChange.POLL, self.now))
        self.pass_time(seconds / 2)


def _none() -> errors.KubeError:
    return errors.KubeError("there is none", status=404)


def _objects() -> tuple[Counter[str], int]:
    """How many there are of each type, and the bytes of all."""
    gc.collect()
    objects = gc.get_objects()
    return Counter(type(each).__name__ for each in objects), sum(map(sys.getsizeof, objects))


def test_what_an_agent_keeps_after_a_day_is_what_it_kept_in_the_morning():
    day = Day()
    for _ in range(100):  # whatever remembers a bounded number of things has its fill
        day.pod(1.0)
    reports, (kinds, size) = day.reports, _objects()
    for _ in range(CHANGES):
        day.pod(DAY_S / CHANGES)
    after, size_after = _objects()
    assert day.reports - reports >= 2 * CHANGES
    assert day.now > DAY_S
    grown = {kind: number - kinds[kind] for kind, number in after.items()}
    # One thing kept of each change would be four times as many.
    assert not {kind: number for kind, number in grown.items() if number > CHANGES / 4}
    assert size_after - size < 16 * CHANGES
