"""A text with the ids of an allocation in it: ``${groups[0].cpus.workers}`` becomes ``3,19``."""

from __future__ import annotations

import json
import re
from typing import Any

from rte import errors

_PLACE = re.compile(r"\$\{([^}\n]*)\}|\$\$")
_STEP = re.compile(r"(?:^|\.)([A-Za-z_][-\w]*)|\[(\d{1,6})\]|\[\"([^\"]+)\"\]")


class TemplateError(errors.RteError):
    """A place of the template leads nowhere."""


def render(template: str, record: dict[str, Any]) -> str:
    """Fill a template in; ``$$`` is a dollar sign.

    A name after a device is a fact told about it (``groups[0].nics[0].mac``), a name after a list
    means each of its members (``groups[0].gpus.uuid``).

    Args:
        template: the text.
        record: the allocation annotation, parsed.

    Raises:
        TemplateError: a path that the record does not have.
    """

    def fill(match: re.Match[str]) -> str:
        return "$" if match[1] is None else _text(_follow(record, match[1]))

    return _PLACE.sub(fill, template)


def _follow(record: dict[str, Any], path: str) -> Any:
    value: Any = record
    end = 0
    for step in _STEP.finditer(path):
        if step.start() != end:
            break
        end = step.end()
        name, index, key = step.groups()
        try:
            value = _below(value, int(index) if index is not None else name or key, record)
        except (KeyError, IndexError, TypeError) as error:
            raise TemplateError(f"the allocation has no {path} (at {path[:end]})") from error
    if not end or end != len(path):
        raise TemplateError(f"${{{path}}} is no path such as groups[0].cpus.workers")
    return value


def _below(value: Any, key: int | str, record: dict[str, Any]) -> Any:
    if isinstance(key, str):
        if isinstance(value, list):
            return [_below(each, key, record) for each in value]
        if isinstance(value, str):
            value = record["devices"][value]
        elif key not in value and "address" in value:
            value = record["devices"][value["address"]]
    return value[key]


def _text(value: Any) -> str:
    """Lists of plain values by commas, other structures as JSON."""
    if isinstance(value, list) and not any(isinstance(inner, dict | list) for inner in value):
        return ",".join(map(str, value))
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "" if value is None else str(value)
