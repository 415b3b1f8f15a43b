"""What :mod:`tests.unit.agent.test_any_order` can find: it finds each of these faults.

Each is a rule of the observer or the publisher that is taken away, mostly one that the agent once
lacked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rte.accounting import liveness
from rte.accounting.liveness import PodTable
from rte.agent.observer.answers import PodresourcesAnswers
from rte.agent.observer.known import NodeSources
from rte.agent.observer.learning import KubeletRestart, Learning
from rte.agent.observer.machine import Observer
from rte.agent.observer.published import Failures, ReadingGate
from rte.agent.publisher.machine import Publisher
from rte.agent.publisher.renewals import Renewals
from rte.model.kubelet import StateFiles
from tests.depth import sampled
from tests.unit.agent.test_any_order import play

if TYPE_CHECKING:
    from collections.abc import Callable

    Fault = tuple[object, str, Callable[..., Any]]


def of_the_present_epoch(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Takes an answer for one of the kubelet that runs now."""

    def changed(self: Any, event: Any, now: float) -> Any:
        restart = self._known.restart if isinstance(self, Observer) else self._restart
        return handle(self, replace(event, epoch=restart.epoch), now)

    return changed


def empty_where_torn(self: Observer, event: Any, now: float) -> None:
    files = event.files if event.problem is None else StateFiles()
    _files_read(self, replace(event, files=files, problem=None), now)


def forget_that_files_failed(self: Observer, event: Any, now: float) -> None:
    _files_read(self, event, now)
    self._known.files.failed = False


def content_with_one_list(self: KubeletRestart, present: Any, expected: Any, now: float) -> str:
    line = _check(self, present, expected, now)
    self.synced = self._complete >= 1
    return line


def from_the_last_state(self: Publisher) -> float | None:
    return None if self._wanted is None or self.is_current else self._wanted.noticed


def without_silence(self: Failures, answers: PodresourcesAnswers | None) -> float:
    heard = SimpleNamespace(at=answers.at, silent_since=None) if answers else None
    failing, self.since = self.since, None
    until = _trusted_until(self, heard)
    self.since = failing
    return until


def without_mirrors(self: PodTable, items: Any) -> None:
    self._pods = {uid: replace(pod, is_mirror=False) for uid, pod in self._pods.items()}
    _replace(self, items)


def step_down(self: Learning, config: Any) -> Any:
    self.config = None
    return _take_config(self, config)


_replace = PodTable.replace
_files_read = Observer._files_read
_trusted_until: Any = Failures.trusted_until
_check = KubeletRestart.check
_take_config = Learning._take_config
_probed = Renewals.probed

FAULTS: dict[str, Fault] = {
    "a former kubelet's last answer counts for the new one": (
        PodresourcesAnswers, "restarted", lambda self: None,
    ),
    "a former kubelet's late answer counts for the new one": (
        Observer, "_answered", of_the_present_epoch(Observer._answered),
    ),
    "what a former kubelet was configured to do counts for the new one": (
        Learning, "take", of_the_present_epoch(Learning.take),
    ),
    "a weaker source of the configuration replaces a better one": (
        Learning, "_take_config", step_down,
    ),
    "what the Node says may still be the former kubelet's": (
        KubeletRestart, "is_before", lambda self, heard, now: False,
    ),
    "what the Node says is read once, whoever has reported it": (
        KubeletRestart, "may_be_before", lambda self, heard: False,
    ),
    "one complete list is enough after a restart": (KubeletRestart, "check", content_with_one_list),
    "nothing is said of a restart until the new kubelet is known": (
        ReadingGate, "distrust", lambda self, why, owner_uid, now: [],
    ),
    "a torn file is an empty one": (Observer, "_files_read", empty_where_torn),
    "what was read before the files were damaged is accounted for again and again": (
        Observer, "_files_read", forget_that_files_failed,
    ),
    "an answer about other files tells who is active": (
        NodeSources, "lists_other_files", property(lambda self: False),
    ),
    "trust does not end": (Observer, "trusted_until", lambda self: math.inf),
    "trust does not end with failures": (Failures, "trusted_until", without_silence),
    "it is vouched for what the API server does not have": (
        Renewals, "probed", lambda self, since, now, alive: _probed(self, None, now, alive=alive),
    ),
    "it is vouched for a kubelet that gives no sign of life": (
        Renewals, "probed", lambda self, since, now, alive: _probed(self, since, now, alive=True),
    ),
    "a kubelet that does not run is as synced as it was": (
        NodeSources, "synced", property(lambda self: self.restart.synced),
    ),
    "what the API server lacks counts from the last state alone": (
        Publisher, "behind_since", from_the_last_state,
    ),
    "what others do to the object goes unnoticed": (
        Publisher, "_noticed", lambda self, event, now: None,
    ),
    "a Node that was made anew does not own the object": (
        Observer, "_own", lambda self, uid, now: None,
    ),
    "a mirror that a new list lacks takes its static pod with it": (
        PodTable, "replace", without_mirrors,
    ),
    "what another release has left says who is admitted": (
        liveness, "keeps_allocated", lambda version, gates: True,
    ),
    "pods that ended while nobody watched are still there": (
        PodTable, "doubtful", lambda self, now: frozenset(),
    ),
}  # fmt: skip


#: Lives in which a rare one shows, tried first.
SHOWS: dict[str, tuple[int, bool]] = {
    "a former kubelet's late answer counts for the new one": (2, False),
    "what a former kubelet was configured to do counts for the new one": (26, True),
    "an answer about other files tells who is active": (22, False),
    "a kubelet that does not run is as synced as it was": (10, True),
    "a mirror that a new list lacks takes its static pod with it": (17, True),
    "pods that ended while nobody watched are still there": (7, True),
}


@pytest.mark.parametrize("fault", sampled(FAULTS))
def test_it_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        play_all(SHOWS.get(fault, (0, True)))


def play_all(first: tuple[int, bool]) -> None:
    play(first[0], api=first[1])
    for seed in range(150):
        for api in (True, False):
            play(seed, api=api)
