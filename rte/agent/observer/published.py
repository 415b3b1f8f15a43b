"""What was read last, and what of it was handed on to be published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import nrt
from rte.agent.observer import messages
from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    from rte.agent.observer.messages import Effect
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
