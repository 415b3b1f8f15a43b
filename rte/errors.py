"""Every error that rte raises on purpose. A message is one line and says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RteError(Exception):
    """Base of all expected failures; ``str(error)`` is the one line that the user sees.

    Names and texts from files and answers get into messages; what is not printable in them becomes
    a space, so that the promise of one line holds.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(letter if letter.isprintable() else " " for letter in text)


def meant(word: str, names: Iterable[str]) -> str:
    """``, did you mean NAME?`` where a name is near the word, else nothing."""
    import difflib  # here: no program that goes on running needs it

    close = difflib.get_close_matches(word, list(names), n=1)
    return f", did you mean {close[0]}?" if close else ""


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read, without its name and the number of the error."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not {error.encoding.upper()} text"
    return error.strerror or str(error)


class UsageError(RteError):
    """A flag, variable, file key or argument is wrong (exit code 2)."""


class ParseError(RteError, ValueError):
    """Text that does not follow its format.

    Attributes:
        what: what was being parsed, e.g. ``CPU list``.
        text: the offending text, shortened.
        why: what is wrong with it, where that is known.
    """

    def __init__(self, what: str, text: object, why: str = "") -> None:
        self.what, self.why = what, why
        try:
            shown = repr(text[:100] if isinstance(text, str | bytes) else text)
        except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
            shown = f"a {type(text).__name__}"
        self.text = shown if len(shown) <= 80 else shown[:77] + "..."
        super().__init__(f"bad {what}: {self.text}" + (f" ({why})" if why else ""))


class MalformedError(ParseError):
    """A document of somebody else is no JSON or YAML, of another schema, or beyond its budget.

    Attributes:
        where: the place in the document that is beyond it, where that is known.
        limit: what it is beyond, ``""`` where no limit is the reason.
    """

    def __init__(
        self, what: str, text: object, why: str, *, where: str = "", limit: str = ""
    ) -> None:
        self.where, self.limit = where, limit
        super().__init__(what, text, why)


class SysfsError(RteError):
    """The sysfs or procfs root cannot describe a machine."""


class KubeletError(RteError):
    """The kubelet's socket, files or configuration cannot be read."""


class KubeletGoneError(KubeletError):
    """Nobody listens at the kubelet's socket: it does not run."""


class KubeletStartError(KubeletError):
    """A kubelet with this configuration would refuse to start.

    Attributes:
        text: the kubelet's own words.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"the kubelet would not start: {text}")


class InconsistentStateError(RteError):
    """Sources that are read at the same time do not agree yet; read again."""


class KubeError(RteError):
    """The API server refused or could not be reached.

    Attributes:
        status: HTTP status code, 0 when there was no answer.
        reason: the Status object's reason, e.g. ``AlreadyExists``.
        retry_after: seconds that the server asks to wait, 0 when it does not say.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(message)


class InternalError(RteError):
    """A fault of rte itself, which has put off the work that met it."""
