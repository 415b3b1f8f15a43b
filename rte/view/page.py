"""Puts the page together: one HTML document with everything in it, for a server or for a file."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from rte.reader.json import Json


_PLACE = re.compile(rb"@(POLICY|STYLE|DATA|SCRIPT)@")
_SCRIPTS = (
    "parts.js", "cells.js", "nodes.js", "chart.js", "pods.js", "detail.js", "view.js",
)  # fmt: skip


def assemble(data: Json | None = None) -> bytes:
    """The page; with data (:meth:`rte.view.source.ViewSource.snapshot`) it needs no server.

    Only this script and style count in it, by their hashes; nothing is loaded from elsewhere.
    """
    html, style, script = _parts()
    embedded = b"null" if data is None else _inert(orjson.dumps(data))
    parts = {
        b"POLICY": _policy(style, script),
        b"STYLE": style,
        b"DATA": embedded,
        b"SCRIPT": script,
    }
    return _PLACE.sub(lambda found: parts[found[1]], html)


@cache
def _parts() -> tuple[bytes, bytes, bytes]:
    folder = resources.files(__package__).joinpath("page")
    script = b"".join(folder.joinpath(name).read_bytes() for name in _SCRIPTS)
    wrapped = b'"use strict";\n(() => {\n' + script + b"})();\n"
    html = folder.joinpath("index.html").read_bytes()
    return html, folder.joinpath("view.css").read_bytes(), wrapped


def _policy(style: bytes, script: bytes) -> bytes:
    def digest(text: bytes) -> str:
        return base64.b64encode(hashlib.sha256(text).digest()).decode()

    return (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'"
    ).encode()


def _inert(text: bytes) -> bytes:
    """JSON that cannot end the element that it stands in."""
    return text.replace(b"<", b"\\u003c")
