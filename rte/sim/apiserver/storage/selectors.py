"""Label and field selectors (apimachinery ``pkg/labels``, ``pkg/fields``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """``operator`` is one of ``exists ! = != in notin > <``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a set of labels meets the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return _compare(value, self.operator, self.values[0])


def _compare(value: str | None, operator: str, bound: str) -> bool:
    try:
        left, right = int(value or ""), int(bound)
    except ValueError:
        return False
    return left > right if operator == ">" else left < right


_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class _LabelParser:
    def __init__(self, text: str) -> None:
        self.tokens = [match[1] for match in _TOKEN.finditer(text.strip())]
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def parse(self) -> tuple[LabelRequirement, ...]:
        out = []
        while self.peek():
            out.append(self.requirement())
            if self.peek() not in ("", ","):
                raise self.unexpected("',' or end of string")
            if self.take() == "," and not self.peek():
                raise self.unexpected("identifier after ','")
        return tuple(out)

    def unexpected(self, wanted: str) -> status.StatusError:
        return status.bad_request(
            f"unable to parse requirement: found '{self.peek()}', expected: {wanted}"
        )

    def requirement(self) -> LabelRequirement:
        negated = self.peek() == "!"
        if negated:
            self.take()
        key = self.take()
        if not _LABEL_KEY.fullmatch(key):
            self.at -= 1
            raise self.unexpected("!, identifier, or 'end of string'")
        if negated or self.peek() in ("", ","):
            return LabelRequirement(key, "!" if negated else "exists")
        operator = self.take()
        if operator in ("in", "notin"):
            return LabelRequirement(key, operator, self.values())
        if operator not in ("=", "==", "!=", ">", "<"):
            self.at -= 1
            raise self.unexpected("in, notin, =, ==, !=, gt, lt")
        value = "" if self.peek() in ("", ",") else self.take()
        if not _LABEL_VALUE.fullmatch(value):
            raise status.bad_request(
                f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}"'
            )
        if operator in (">", "<"):
            return LabelRequirement(key, operator, (value,))
        return LabelRequirement(key, "notin" if operator == "!=" else "in", (value,))

    def values(self) -> tuple[str, ...]:
        if self.take() != "(":
            self.at -= 1
            raise self.unexpected("'('")
        values: list[str] = []
        while True:
            word = self.take()
            if word in ("", "(", "=", "==", "!=", "!", "<", ">"):
                self.at -= 1
                raise self.unexpected("',', ')' or identifier")
            if word in (",", ")"):
                values.append("")
            else:
                values.append(word)
                word = self.take()
            if word == ")":
                return tuple(values)
            if word != ",":
                self.at -= 1
                raise self.unexpected("',' or ')'")


def parse_labels(text: str) -> tuple[LabelRequirement, ...]:
    """Parse ``a=b,c in (d,e),!f``.

    Raises:
        status.StatusError: 400, text outside the grammar.
    """
    return _LabelParser(text).parse()


def from_label_selector(selector: Mapping[str, Any] | None) -> tuple[LabelRequirement, ...] | None:
    """A ``LabelSelector`` object as requirements; None selects nothing."""
    if selector is None:
        return None
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    return (
        *(LabelRequirement(k, "in", (v,)) for k, v in (selector.get("matchLabels") or {}).items()),
        *(
            LabelRequirement(
                item["key"], operators[item["operator"]], tuple(item.get("values") or ())
            )
            for item in selector.get("matchExpressions") or ()
        ),
    )


def text(requirements: Iterable[LabelRequirement]) -> str:
    """Requirements as the server writes them: ``a=b,c in (d,e)``, in order of their keys."""
    words = []
    for one in sorted(requirements, key=lambda item: item.key):
        values = ",".join(sorted(one.values))
        match one.operator:
            case "exists":
                words.append(one.key)
            case "!":
                words.append(f"!{one.key}")
            case "in" if len(one.values) == 1:
                words.append(f"{one.key}={values}")
            case "in" | "notin":
                words.append(f"{one.key} {one.operator} ({values})")
            case _:
                words.append(f"{one.key}{one.operator}{values}")
    return ",".join(words)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """``field = value`` or ``field != value``."""

    field: str
    equal: bool
    value: str


def parse_fields(text: str, supported: Callable[[str], bool]) -> tuple[FieldRequirement, ...]:
    """Parse ``metadata.name=a,status.phase!=Failed``.

    Raises:
        status.StatusError: 400, text outside the grammar or a field that is not supported.
    """
    out = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = re.match(r"((?:[^=!\\]|\\.)*?)(==|!=|=)(.*)", term, re.DOTALL)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = match.groups()
        if not supported(name):
            raise status.bad_request(f"field label not supported: {name}")
        unescaped = re.sub(r"\\([\\,=])", r"\1", value)
        out.append(FieldRequirement(name, operator != "!=", unescaped))
    return tuple(out)
