"""Label and field selectors as texts (apimachinery ``pkg/labels``, ``pkg/fields``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import selectors
from rte.sim.apiserver import status

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.k8s.selectors import Requirement, Selector


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse ``a=b,c in (d,e),!f``.

    Raises:
        status.StatusError: 400, text outside the grammar.
    """
    try:
        return selectors.parse_text(text).expressions
    except errors.ParseError as error:
        raise status.bad_request(f"unable to parse requirement: {error}") from error


def text(wanted: Selector) -> str:
    """A selector as the server writes it: ``a=b,c in (d,e)``, in order of the keys."""
    words = []
    for one in wanted.requirements or ():
        values = ",".join(sorted(one.values))
        match one.operator:
            case "Exists":
                words.append(one.key)
            case "DoesNotExist":
                words.append(f"!{one.key}")
            case "In" if len(one.values) == 1:
                words.append(f"{one.key}={values}")
            case _:
                words.append(f"{one.key} {one.operator.lower()} ({values})")
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
