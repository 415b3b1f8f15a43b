"""A text with the ids of an allocation in it: ``${groups[0].cpus.workers}`` becomes ``3,19``."""

from __future__ import annotations

import json
import re
from typing import Any

from rte import errors
from rte.placement.groups.document import PathError, follow

_PLACE = re.compile(r"\$\{([^}\n]*)\}|\$\$")


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
    devices = record.get("devices", {})

    def below(value: Any, key: int | str) -> Any:
        if isinstance(key, str):
            if isinstance(value, list):
                return [below(each, key) for each in value]
            if isinstance(value, str):
                value = devices[value]
            elif key not in value and "address" in value:
                value = devices[value["address"]]
        return value[key]

    def fill(match: re.Match[str]) -> str:
        return "$" if match[1] is None else _text(follow(record, match[1], below))

    try:
        return _PLACE.sub(fill, template)
    except PathError as error:
        why = f"${{{error.path}}} is no path such as groups[0].cpus.workers"
        if error.at:
            why = f"the allocation has no {error.path} (at {error.at})"
        raise TemplateError(why) from error


def _text(value: Any) -> str:
    """Lists of plain values by commas, other structures as JSON."""
    if isinstance(value, list) and not any(isinstance(inner, dict | list) for inner in value):
        return ",".join(map(str, value))
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "" if value is None else str(value)
