"""What is learnt once per start of the kubelet: when it is asked for, and which answer counts.

Configuration and Node. Sources of a configuration are ranked: within one start of the kubelet none
is replaced by that of a weaker one, and until the best has answered it is asked again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.agent.observer.messages import Learn, NodeObjectFacts
from rte.model.backoff import Backoff
from rte.model.node import ConfigSource
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.agent.observer.messages import Learnt
    from rte.agent.observer.restart import KubeletRestart
    from rte.agent.timings import Timings
    from rte.model.node import KubeletConfig, NodeState

#: Attempts in which only the kubelet itself is asked for its configuration: some seconds. Its
#: sockets open one after the other.
_PATIENCE = 8


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
