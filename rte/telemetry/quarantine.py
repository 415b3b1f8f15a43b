"""Bulkheads: what raises is put aside for a while, and everything else goes on (pure).

Work about one object or unit is done behind a :meth:`Quarantine.guard`. An exception there is a
fault of the program; whoever caused it (an object of somebody else, mostly) must not end the
program with it, nor hold others up. Cancellation and the end of the process pass through. What of
others merely cannot be read is told once (:class:`MalformedObjects`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rte import errors
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from types import TracebackType

#: Seconds for which something is put aside: at first, doubled with each fault, at last.
FIRST_S, MOST_S = 10.0, 300.0

#: So many things are remembered, and so many faults that were told.
_MOST_KEPT, _MOST_TOLD = 10_000, 1_000

#: Innermost frames of a traceback that are told: a deep recursion has a thousand like them.
_FRAMES = 20

#: Of the text of an exception that much is told.
_TEXT = 200


@dataclass(slots=True)
class Fault:
    """Something that raised.

    Attributes:
        why: the exception in one line.
        wait: seconds for which it is put aside.
        until: when it may be tried again.
        holds: it is aside now.
    """

    why: str
    wait: float
    until: float
    holds: bool = True

    def __str__(self) -> str:
        return f"put aside after an internal error ({self.why}), tried again after {self.wait:g} s"


class Bulkhead:
    """One piece of work; whatever it raises ends it alone.

    Attributes:
        fault: what came of it, None: all went well.
    """

    __slots__ = ("_key", "_kind", "_now", "_quarantine", "fault")

    def __init__(self, quarantine: Quarantine, kind: str, key: str, now: float) -> None:
        self._quarantine, self._kind, self._key, self._now = quarantine, kind, key, now
        self.fault: Fault | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.fault = self._quarantine.put(self._kind, self._key, error, self._now)
        return True


class Quarantine:
    """Who raised, and until when it is put aside; kinds and keys are the caller's words.

    Attributes:
        effects: what is to be told; who tells it takes it out.
    """

    def __init__(self) -> None:
        self._faults: OrderedDict[tuple[str, str], Fault] = OrderedDict()
        self._aside: Counter[str] = Counter()
        self._told: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self.effects: list[Measured | Said] = []

    def guard(self, kind: str, key: str, now: float) -> Bulkhead:
        """Work about that thing, behind a bulkhead."""
        return Bulkhead(self, kind, key, now)

    def put(self, kind: str, key: str, error: Exception, now: float) -> Fault:
        """The thing raised: it is put aside, for longer each time."""
        before = self._faults.pop((kind, key), None)
        wait = FIRST_S
        if before is not None:
            self._lift(kind, before)
            wait = min(MOST_S, 2 * before.wait)
        fault = self._faults[kind, key] = Fault(_line(error), wait, now + wait)
        self._aside[kind] += 1
        if len(self._faults) > _MOST_KEPT:
            (other, _), oldest = self._faults.popitem(last=False)
            self._lift(other, oldest)
        self._tell(kind, key, error, fault)
        self._measure(kind)
        return fault

    def as_expected(self, kind: str, key: str, error: Exception, now: float) -> errors.RteError:
        """A failure as one that is expected; whatever else is raised is a fault of ours."""
        if isinstance(error, errors.RteError):
            return error
        return errors.InternalError(f"internal error: {self.put(kind, key, error, now).why}")

    def holds(self, kind: str, key: str, now: float) -> Fault | None:
        """Why the thing is aside now, None: it is not."""
        fault = self._faults.get((kind, key))
        return fault if fault is not None and fault.holds and now < fault.until else None

    def release(self, kind: str, key: str) -> None:
        """It is tried again; another fault puts it aside for longer."""
        fault = self._faults.get((kind, key))
        if fault is not None and fault.holds:
            self._lift(kind, fault)
            self._measure(kind)

    def forget(self, kind: str, key: str) -> None:
        """The thing is gone, or another one now."""
        fault = self._faults.pop((kind, key), None)
        if fault is not None:
            self._lift(kind, fault)
            self._measure(kind)

    def tidy(self, now: float) -> None:
        """Whose time is over is aside no more; what has not raised for long starts afresh."""
        kinds = set()
        for (kind, key), fault in list(self._faults.items()):
            if fault.holds and fault.until <= now:
                self._lift(kind, fault)
                kinds.add(kind)
            if fault.until + 2 * MOST_S <= now:
                del self._faults[kind, key]
        for kind in kinds:
            self._measure(kind)

    def _tell(self, kind: str, key: str, error: Exception, fault: Fault) -> None:
        """The traceback once, a line for each thing that raises in the same way."""
        what = (type(error).__name__, _place(error))
        self.effects.append(Measured("faults", labels=(kind,)))
        if (*what, kind, key) in self._told:
            return
        trace = error if self._note(what) else None
        if trace is not None:
            trace.__cause__ = trace.__context__ = None
            trace = trace.with_traceback(_innermost(trace))
        self._note((*what, kind, key))
        self.effects.append(Said("error", f"{kind} {key}: {fault}", error=trace))

    def _note(self, what: tuple[str, ...]) -> bool:
        """Whether it is new."""
        if what in self._told:
            self._told.move_to_end(what)
            return False
        self._told[what] = None
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        return True

    def _lift(self, kind: str, fault: Fault) -> None:
        """It is aside no more."""
        self._aside[kind] -= fault.holds
        fault.holds = False

    def _measure(self, kind: str) -> None:
        self.effects.append(Measured("quarantined", float(self._aside[kind]), (kind,), how="set"))


def _line(error: Exception) -> str:
    """The exception in one line; its text may have been written by anybody."""
    text = "".join(each if each.isprintable() else " " for each in str(error)[:_TEXT])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _innermost(error: Exception) -> TracebackType | None:
    """The last frames of its traceback."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames[-_FRAMES] if len(frames) > _FRAMES else error.__traceback__


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


class MalformedObjects:
    """By kind and key, with the reason; metric ``malformed`` has their number.

    Attributes:
        reasons: kind -> key -> why it cannot be read.
    """

    def __init__(self) -> None:
        self.reasons: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def note(self, kind: str, key: str, why: str = "", name: str = "") -> list[Measured | Said]:
        """What became of reading one; without ``why`` it is sound, or gone. Told is what is new."""
        known = self.reasons[kind]
        if known.get(key, "") == why:
            return []
        if why:
            known[key] = why
        else:
            del known[key]
        number = Measured("malformed", float(len(known)), labels=(kind,), how="set")
        return [number, Said("warning", f"{kind} {name or key}: {why}")] if why else [number]
