"""Files that people name: texts, and objects as ``kubectl get -o yaml`` prints them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rte import errors
from rte.reader import budget, yamltext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rte.reader.json import JsonObject


def read_text(file: Path) -> str:
    """A file's text; ``-`` is standard input.

    Raises:
        errors.UsageError: it cannot be read.
    """
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"cannot read {file}: {errors.why_unreadable(error)}") from error


def load_objects(files: Sequence[Path]) -> list[JsonObject]:
    """All objects of the files, lists unfolded; ``-`` is standard input.

    Raises:
        errors.UsageError: a file cannot be read, or is not YAML of Kubernetes objects.
    """
    out: list[JsonObject] = []
    for file in files:
        text = read_text(file)
        try:
            documents = yamltext.load_all(text, "manifest", budget.OWN)
        except errors.MalformedError as error:
            why = error.why.removeprefix("not YAML: ")
            raise errors.UsageError(f"{file} is not YAML: {why}") from error
        for document in documents:
            out.extend(_unfold(document, file))
    return out


def _unfold(document: object, file: Path) -> Iterator[JsonObject]:
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise errors.UsageError(f"{file} holds something that is no Kubernetes object (no kind)")
    items = document.get("items")
    if isinstance(items, list):
        kind = document["kind"].removesuffix("List")
        for item in items:
            if not isinstance(item, dict):
                raise errors.UsageError(f"{file}: an item of the list is not an object")
            yield from _unfold({"kind": kind, **item}, file)
        return
    _check(document, file)
    yield document


def _check(document: JsonObject, file: Path) -> None:
    """What every object is made of, before anybody looks into it."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    title = f"{file}: {document['kind']} {name if isinstance(name, str) else '?'}"
    for key in ("metadata", "spec", "status"):
        if not isinstance(document.get(key), dict | None):
            raise errors.UsageError(f"{title}: {key} is no object")
    for key in ("name", "namespace", "uid"):
        if not isinstance(metadata.get(key), str | None):
            raise errors.UsageError(f"{title}: metadata.{key} is no text")
