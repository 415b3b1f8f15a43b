"""What was read last, and what of it was handed on to be published; readings that
fail: when to look again, what is said of it, and when trust ends.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors, nrt
from rte.agent.observer import messages
from rte.model.backoff import Backoff
from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.agent.observer.answers import PodresourcesAnswers
    from rte.agent.observer.messages import Effect
    from rte.agent.timings import Timings
    from rte.model.node import NodeReading, NodeState


class ReadingGate:
    """Hands a reading on where it differs from the last one.

    Attributes:
        reading: the last one; None: there was none yet.
    """

    def __init__(self, options: nrt.WriterOptions) -> None:
        self._options = options
        self.reading: NodeReading | None = None
        self._offered: tuple[NodeReading, nrt.WriterOptions] | None = None
        self._disagreements: tuple[str, ...] = ()

    @property
    def state(self) -> NodeState | None:
        """The state of the last reading."""
        return self.reading.state if self.reading else None

    def offer(self, reading: NodeReading, owner_uid: str, noticed: float) -> list[Effect]:
        """Take a reading, of a cause that was noticed then, for an object of that owner."""
        self.reading = reading
        options = replace(self._options, owner_uid=owner_uid)
        effects: list[Effect] = []
        if self._offered != (reading, options):
            self._offered = reading, options
            encoded = nrt.build(reading, options)
            left_out = {name: name in encoded.dropped for name in nrt.ANNOTATIONS}
            observation = messages.Observation(encoded.object, noticed)
            effects.append(messages.Publish(observation, left_out))
        return effects

    def distrust(self, why: str, owner_uid: str, now: float) -> list[Effect]:
        """The last reading once more as not synced: nothing is known of a new kubelet, or none
        runs.
        """
        effects = tell_synced(why)
        if self.reading is not None and self.reading.state is not None:
            state = replace(self.reading.state, synced=False)
            effects += self.offer(replace(self.reading, state=state), owner_uid, now)
            effects.append(messages.CompareAdmissions(state))
        return effects

    def disagree(self, lines: tuple[str, ...]) -> list[Effect]:
        """What sources disagree about; told when it is new."""
        known, self._disagreements = self._disagreements, lines
        return [
            Measured("disagreements", float(len(lines)), how="set"),
            *(Said("warning", f"sources disagree: {line}") for line in lines if line not in known),
        ]


#: Why a kubelet is not synced.
NOT_TAKEN_UP = "the kubelet has not taken up its pods since its start"
GONE = "the kubelet does not run"


def tell_synced(why: str = "") -> list[Effect]:
    """Whether the kubelet has re-admitted its pods since it was started; else ``why`` not."""
    return [Measured("synced", float(not why), how="set"), SetReadiness("synced", why)]


#: Everything is asked once per poll interval, give or take a fifth of it.
_MOST_POLLS = 1.2


class Failures:
    """Of readings in a row.

    Attributes:
        since: when the first of them failed; None: the last one worked.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.since: float | None = None
        self._worked_at = -math.inf
        self._torn = Backoff(timings.torn, timings.torn_most)
        self._told = self._damaged = ""

    def restarted(self) -> None:
        """Another kubelet: of it nothing has been read."""
        self._worked_at = -math.inf

    def trusted_until(self, answers: PodresourcesAnswers | None) -> float:
        """Until when the last reading is to be trusted; ``answers`` where podresources is asked.

        Trust ends by itself: with a source that fails for ``stale`` seconds, and with none that has
        said anything although everything was due to be asked. What a former kubelet said is worth
        nothing.
        """
        read_at = self._worked_at if answers is None else min(self._worked_at, answers.at)
        until = read_at + _MOST_POLLS * self._timings.poll + self._timings.stale
        for since in (self.since, answers.silent_since if answers else None):
            if since is not None:
                until = min(until, since + self._timings.stale)
        return until

    def failed(
        self, error: errors.RteError, now: float, *, is_young: bool
    ) -> tuple[float, list[Effect]]:
        """Note one: when to look again unless something changes before, and what is to be told.

        ``is_young``: the kubelet was started a moment ago and is about to answer.
        """
        match error:
            case errors.InconsistentStateError():
                result, what = "torn", "the kubelet's files do not agree"
            case errors.ParseError():
                result, what = "torn", "a state file of the kubelet is damaged"
            case _:
                result, what = "failed", "the kubelet cannot be read"
        effects: list[Effect] = [messages.Failed(result, error), *self._note(error)]
        if self.since is None:
            self.since = now
            self._torn.worked()
        lasting = result == "failed" or now - self.since > self._timings.settled
        if lasting and what != self._told:
            self._told = what
            effects += [
                Said("warning", f"{what}, will keep looking: {error}"),
                SetReadiness("reading", what),
            ]
        wait = self._torn.failed()
        if result == "failed":
            wait = self._timings.readmission if is_young else self._timings.source
        return now + wait, effects

    def _note(self, error: errors.RteError | None) -> Iterator[Effect]:
        """Which files are damaged now, by their name: the others have been read."""
        name = error.what.rpartition("/")[2] if isinstance(error, errors.ParseError) else ""
        if name != self._damaged:
            if self._damaged:
                yield Measured("malformed", 0.0, labels=(self._damaged,), how="set")
            if name:
                yield Measured("malformed", 1.0, labels=(name,), how="set")
            self._damaged = name

    def worked(self, now: float) -> list[Effect]:
        """A reading worked; what is to be told."""
        self.since, self._worked_at = None, now
        effects: list[Effect] = [
            SetReadiness("reading"),
            Measured("readings", labels=("consistent",)),
            *self._note(None),
        ]
        if self._told:
            self._told = ""
            effects.append(Said("info", "the kubelet is readable again"))
        return effects
