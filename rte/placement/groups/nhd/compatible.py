"""Pods that go on reading the annotation in which NHD gave them their configuration.

Such a request carries NHD's file along (``render.triad``): the bind fills it in and writes it where
NHD wrote it, so the pod's own specification stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.groups.document import RequestError
from rte.placement.groups.nhd import triad
from rte.reader import jsontext

if TYPE_CHECKING:
    from rte.placement.groups.nhd.triad import Triad

#: In ``render`` of the request.
FIELD = "triad"


def file_of(request: str) -> Triad | None:
    """NHD's file in a request that has been found valid; None: it carries none.

    Raises:
        RequestError: the file has a fault; the path begins with ``render.triad``.
    """
    render = jsontext.exact(request, FIELD, dict).get("render")
    if not isinstance(render, dict) or FIELD not in render:
        return None
    where = f"render.{FIELD}"
    text = render[FIELD]
    if not isinstance(text, str):
        raise RequestError("type", where, "must be a string")
    try:
        return triad.read(text)
    except RequestError as error:
        raise RequestError(error.code, f"{where}: {error.path}", error.message) from error
