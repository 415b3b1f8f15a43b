"""YAML of somebody else: manifests, kubeconfigs, the kubelet's configuration, our own files.

An alias costs its whole anchor each time, so a few lines that stand for gigabytes are refused
before anything is made of them. Text that is JSON is read as JSON, which YAML's parser does not do
for all of it (surrogate pairs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from rte import errors
from rte.reader import jsontext

if TYPE_CHECKING:
    from rte.reader.json import JsonValue
    from rte.reader.jsontext import ReadBudget

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: What YAML 1.1 takes for a number, however long.
_NUMBER = re.compile(r"[-+.0-9][-+.0-9a-fA-FxXoO_:]{100,}")
_OPENS = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSES = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


def load_all(
    text: str | bytes, what: str, bounds: ReadBudget, *, aliases: bool = True
) -> list[JsonValue]:
    """The values of all documents; with ``aliases=False`` each value is written out.

    Raises:
        errors.MalformedError: no YAML, or beyond the budget.
    """
    bounds.check_size(text, what)
    if text.lstrip()[:1] in ("{", "[", b"{", b"["):
        try:
            return [jsontext.load(text, what, bounds)]
        except errors.MalformedError as error:
            if error.limit:
                raise
    try:
        _measure(text, what, bounds, aliases)
        documents = list(yaml.load_all(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise errors.MalformedError(what, text, f"not YAML: {_fault(error, text)}") from None
    # Scalars that look like a date or a number but are none; keys that cannot be one.
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        if isinstance(error, errors.MalformedError):
            raise
        why = " ".join(str(error).split())[:200]
        raise errors.MalformedError(what, text, f"not YAML of this kind: {why}") from None
    for document in documents:
        bounds.check(document, what)
    return documents


def load(text: str | bytes, what: str, bounds: ReadBudget) -> JsonValue:
    """The value of the only document; None where there is none.

    Raises:
        errors.MalformedError: no YAML, several documents, or beyond the budget.
    """
    documents = load_all(text, what, bounds)
    if len(documents) > 1:
        raise errors.MalformedError(what, text, "not YAML of this kind: several documents")
    return documents[0] if documents else None


def _measure(text: str | bytes, what: str, bounds: ReadBudget, aliases: bool) -> None:
    """Refuse what would be too much once it is made."""
    anchors: dict[str, int] = {}
    #: What the open collections are anchored as, and the count before each.
    open_ones: list[tuple[str | None, int]] = []
    items = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, _CLOSES):
            anchor, before = open_ones.pop()
            if anchor is not None:
                anchors[anchor] = items - before
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            anchors = {}
            continue
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
                why = f"{line}write out what the alias stands for"
                raise errors.MalformedError(what, f"*{event.anchor}", why)
            if event.anchor not in anchors:
                raise errors.MalformedError(what, text, f"alias {event.anchor} is of no anchor")
            items += anchors[event.anchor]
        elif isinstance(event, _OPENS):
            open_ones.append((event.anchor, items))
            items += 1
            _limit(what, text, len(open_ones), jsontext.MOST_DEPTH, "levels")
        elif isinstance(event, yaml.ScalarEvent):
            items += 1
            if event.anchor is not None:
                anchors[event.anchor] = 1
            if event.style is None and _NUMBER.fullmatch(event.value):
                raise errors.MalformedError(what, event.value, "more than 64 bits", limit="64 bits")
        _limit(what, text, items, bounds.items, "values")


def _limit(what: str, text: str | bytes, number: int, most: int, unit: str) -> None:
    if number > most:
        limit = f"{most} {unit}"
        raise errors.MalformedError(what, text, f"more than {limit}", limit=limit)


def _fault(error: yaml.YAMLError, text: str | bytes) -> str:
    """What the parser stumbled over, and where."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())[:200]
    if text[mark.index : mark.index + 1] in ("\t", b"\t"):
        problem = "a tab, and YAML is indented with spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
