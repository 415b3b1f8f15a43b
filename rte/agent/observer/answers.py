"""What podresources told of the present kubelet, and when it is to be asked again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer.messages import KubeletChange

if TYPE_CHECKING:
    from rte.agent.timings import Timings
    from rte.model.kubelet import KubeletView, StateFiles

#: What only podresources tells, or tells better.
_LIST = KubeletChange.DEVICES | KubeletChange.SOCKET | KubeletChange.POLL


class PodresourcesAnswers:
    """The last answer, and the one that is waited for.

    Attributes:
        view: the last answer of the present kubelet.
        files: the state files around it.
        is_fresh: nobody has drawn conclusions from it yet.
        at: when it came.
        silent_since: when a question failed for the first time since; None: none did.
        is_gone: the kubelet does not run, by the last question.
        asked: an answer is on its way.
        holds_up: nothing can be accounted for before it is there.
        check_at: when to ask for comparison; infinite: there is nothing to compare.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.view: KubeletView | None = None
        self.files: StateFiles | None = None
        self.is_fresh = False
        self.at = -math.inf
        self.silent_since: float | None = None
        self.is_gone = False
        self.asked = False
        self.holds_up = False
        self.check_at = math.inf
        self._check_by = math.inf
        self._again = False

    def restarted(self) -> None:
        """Another kubelet: the former one's answers say nothing about it."""
        self.view = self.files = None
        self.is_fresh = self.is_gone = False
        self.at = -math.inf

    def is_due(self, changes: KubeletChange, now: float) -> bool:
        """Whether these changes, or the time, are a reason to ask."""
        return self.view is None or bool(changes & _LIST) or now >= self.check_at

    def is_needed(self, changes: KubeletChange) -> bool:
        """Whether nothing can be said of these changes before podresources has answered."""
        return self.view is None or KubeletChange.DEVICES in changes

    def ask(self, *, holds_up: bool) -> bool:
        """Note a question; False: one is under way, so it is asked afterwards."""
        self.holds_up |= holds_up
        self.check_at = math.inf
        if self.asked:
            self._again = True
            return False
        self.asked = True
        return True

    def ended(self) -> bool:
        """The question was answered or failed; whether there is another one by now."""
        again, self._again = self._again, False
        self.asked = self.holds_up = False
        return again

    def take(self, view: KubeletView, files: StateFiles | None, now: float) -> None:
        """An answer of the present kubelet."""
        self.view, self.files, self.is_fresh = view, files, True
        self.at, self.silent_since, self.is_gone = now, None, False

    def fail(self, problem: errors.RteError, now: float) -> None:
        """No answer."""
        self.is_gone |= isinstance(problem, errors.KubeletGoneError)
        if self.silent_since is None:
            self.silent_since = now

    def check_in(self, wait_s: float, now: float) -> None:
        """Compare after ``wait_s``, later if more changes meanwhile."""
        self.check_at = now + wait_s
        self._check_by = now + max(wait_s, self._timings.check_most)

    def put_off(self, now: float) -> None:
        """More has changed: that is published first, the answer would come amid the next writes."""
        if self.check_at < math.inf:
            self.check_at = max(self.check_at, min(now + self._timings.check, self._check_by))
