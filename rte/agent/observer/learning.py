"""What is learnt once per start of the kubelet: when it is asked for, and which answer counts.

Configuration and Node. Sources of a configuration are ranked: within one start of the kubelet none
is replaced by that of a weaker one, and until the best has answered it is asked again. A start has
come to its end when the kubelet has re-admitted its pods (:class:`KubeletRestart`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.agent.observer.messages import Learn, NodeObjectFacts
from rte.model.backoff import Backoff
from rte.model.node import ConfigSource
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from collections.abc import Set as AbstractSet

    from rte.agent.observer.messages import Learnt
    from rte.agent.timings import Timings
    from rte.model.node import KubeletConfig, NodeState

#: Attempts in which only the kubelet itself is asked for its configuration: some seconds. Its
#: sockets open one after the other.
_PATIENCE = 8


class KubeletRestart:
    """Whether the kubelet has re-admitted its pods since it was started (pure but for its state).

    Its podresources list shows a pod as soon as the kubelet knows it, a moment before admission;
    so the list of a kubelet that was just started must be complete twice in a row. ``most_s`` after
    its start a kubelet has re-admitted all that it ever will.

    Attributes:
        epoch: which start; empty: none was seen yet.
        synced: it has.
        is_first: no other kubelet was seen before this one.
        gone: UIDs that its files called admitted, and that were over, while it was synced.
    """

    _JUST_STARTED_S = 10.0
    #: A kubelet may report first and make its socket afterwards, and tells whole seconds.
    _SLACK_S = 10.0

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.epoch = ""
        self.synced = False
        self._began = self._started = self._seen = -math.inf
        self._made: float | None = None
        self._complete = 0
        self.is_first = True
        self.gone: frozenset[str] = frozenset()

    def notice(
        self, epoch: str, now: float, started: float | None, made: float | None = None
    ) -> bool:
        """Take the current epoch ("" = no socket); True when it is a new one.

        ``started`` is when the kubelet made its socket, on the clock of ``now`` (None: a moment
        ago, for all that is known), ``made`` the same by the clock of its reports.
        """
        if epoch == self.epoch:
            self._seen = now
        if not epoch or epoch == self.epoch:
            return False
        self.is_first = not self.epoch
        # Whatever its clock says: not before the former one was seen last.
        started = now if started is None else max(started, self._seen)
        self.epoch, self._began, self._started, self._made = epoch, now, started, made
        self._complete = 0 if now - started < self._JUST_STARTED_S else 1
        self._seen = now
        self.synced = False
        return True

    def is_young(self, now: float) -> bool:
        """Whether the start was noticed a moment ago, and the kubelet is about to answer."""
        return bool(self.epoch) and not self.synced and now - self._began < self._JUST_STARTED_S

    def is_before(self, heard: float | None, now: float) -> bool:
        """Whether a report from the moment ``heard`` is still the former kubelet's.

        A starting kubelet reports at once (syncNodeStatus in pkg/kubelet/kubelet_node_status.go);
        ``most_s`` after the start nothing more is waited for.
        """
        if heard is None or self._made is None or now - self._began > self._most_s:
            return False
        return heard < self._made - self._SLACK_S

    def may_be_before(self, heard: float | None) -> bool:
        """Whether a report from the moment ``heard`` may be the former kubelet's."""
        return (
            bool(self.epoch) and heard is not None and (self._made is None or heard <= self._made)
        )

    def is_settled(self, now: float) -> bool:
        """Whether it has run for so long that it has re-admitted what it ever will."""
        return now - self._started > self._most_s

    def check(
        self, present: AbstractSet[Hashable], expected: AbstractSet[Hashable], now: float
    ) -> str:
        """Compare who is there by now with who is to be; each call is about a new answer.

        Returns:
            What an operator should know, in one line; mostly nothing.
        """
        missing = expected - present
        self._complete = 0 if missing else self._complete + 1
        line = ""
        if now - self._began > self._most_s and missing:
            line = f"the kubelet has not taken up {len(missing)} of its pods after its start"
            self._complete = 2
        self.synced = self._complete >= 2
        return line

    def nobody_to_ask(self) -> None:
        """Files alone do not tell, nor does a recording of a kubelet."""
        self.synced = True


class Learning:
    """What is known of the present kubelet's configuration and of the Node.

    Args:
        timings: see there.
        restart: the kubelet's present start.
        best: the best source that can be had.
        jitter: factor of each wait.

    Attributes:
        config: in force; None until the first answer.
        node: as it was learnt last.
        reported: what an agent before us has published; None: nothing.
        known: both were learnt of the present kubelet.
        due: when to ask; infinite: never.
        asked: an answer is on its way.
    """

    def __init__(
        self,
        timings: Timings,
        restart: KubeletRestart,
        best: ConfigSource,
        jitter: Callable[[], float],
    ) -> None:
        self._timings = timings
        self._restart = restart
        self._best = best
        self._waits = Backoff(timings.unknown, timings.unknown_most, jitter)
        self._better = Backoff(timings.relearn, timings.relearn_most)
        self._surer = Backoff(timings.relearn, timings.relearn_most)
        self.config: KubeletConfig | None = None
        self.node = NodeObjectFacts()
        self.reported: NodeState | None = None
        self.known = False
        self.due = math.inf
        self._later = -math.inf
        self.asked = False
        self._is_late = False
        self._config_epoch: str | None = None
        self._complained = False

    @property
    def pending(self) -> bool:
        """Whether something may still be the former kubelet's."""
        return not self.known or self._is_late

    def at(self, moment: float) -> None:
        """Ask (again) then."""
        self.due = min(self.due, moment)
        self._later = max(self._later, moment)

    def restarted(self, now: float) -> None:
        """Another kubelet: nothing is known of it."""
        self.known = self._is_late = False
        self._surer.worked()
        self.at(now)

    def ask(self, memory_bytes: int, now: float) -> Learn | None:
        """The question, if it is due."""
        if self.asked or self.due > now:
            return None
        self.asked = True
        self.due = self._later if self._later > now else math.inf
        return Learn(self._restart.epoch, memory_bytes, self._waits.attempts < _PATIENCE)

    def take(self, answer: Learnt, now: float) -> tuple[bool, list[Measured | Said]]:
        """Take an answer; whether anything is known anew, and what is to be told."""
        self.asked = False
        if answer.epoch != self._restart.epoch:
            self.at(now)  # what one kubelet said of itself says nothing about the next
            return False, []
        if answer.problem is not None:
            return False, self._failed(answer, now)
        self._waits.worked()
        self._complained = False
        before = self.config, self.node
        if answer.epoch != self._config_epoch:
            self.config, self._config_epoch = None, answer.epoch
            self._better.worked()
        told = self._take_config(answer.config) if answer.config else []
        self.node = answer.node
        self.reported = answer.reported or self.reported
        waited_for, self.known = not self.known, True
        self._is_late = self._restart.is_before(answer.node.heard, now)
        if self._is_late:
            self.at(now + self._timings.source)
        elif self._restart.may_be_before(answer.node.heard):
            self.at(now + self._surer.failed())
        if answer.config is not None and answer.config.source.rank < self._best.rank:
            self.at(now + self._better.failed())
        return waited_for or before != (self.config, self.node), told

    def _failed(self, answer: Learnt, now: float) -> list[Measured | Said]:
        self.at(now + self._waits.failed(getattr(answer.problem, "retry_after", 0.0)))
        if self._complained:
            return []
        self._complained = True
        line = f"the node cannot be learnt about yet, will keep asking: {answer.problem}"
        return [Said("warning", line)]

    def _take_config(self, config: KubeletConfig) -> list[Measured | Said]:
        """Take a configuration, but none of a weaker source than that of the same kubelet."""
        known = self.config
        if known is not None and config.source.rank < known.source.rank:
            return []
        self.config = config
        if known is not None and config.source is known.source:
            return []
        is_better_had = config.is_assumed and self._best is ConfigSource.CONFIGZ
        unsure = " (its flags are not known; allow get on nodes/configz)"
        return [
            *(
                Measured("config_source", float(source is config.source), (source,), "set")
                for source in ConfigSource
                if source
            ),
            Said(
                "warning" if is_better_had else "info",
                f"the kubelet's configuration is taken from: {config.source or 'nowhere'}"
                f"{unsure if is_better_had else ''}",
            ),
        ]
