"""Files that people name: texts, and objects as ``kubectl get -o yaml`` prints them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rte import errors
from rte.reader import archive, jsontext, yamltext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rte.reader.json import JsonObject, JsonValue


def read_text(file: Path) -> str:
    """A file's text; ``-`` is standard input.

    Raises:
        errors.UsageError: it cannot be read.
    """
    try:
        return _read(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"cannot read {file}: {errors.why_unreadable(error)}") from error


def _read(file: Path) -> bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


def load_objects(files: Sequence[Path]) -> list[JsonObject]:
    """All objects of the files, lists unfolded; ``-`` is standard input.

    A file is YAML, JSON, or an archive of ``rte snapshot --cluster``.

    Raises:
        errors.UsageError: a file cannot be read, or does not hold Kubernetes objects.
    """
    out: list[JsonObject] = []
    for file in files:
        try:
            content = _read(file)
        except OSError as error:
            raise errors.UsageError(
                f"cannot read {file}: {errors.why_unreadable(error)}"
            ) from error
        for document in _documents(content, file):
            out.extend(_unfold(document, file))
    return out


def _documents(content: bytes, file: Path) -> Sequence[JsonValue]:
    try:
        if archive.is_archive(content):
            return list(archive.objects(content))
        return yamltext.load_all(content.decode(), "manifest", jsontext.OWN)
    except UnicodeDecodeError as error:
        raise errors.UsageError(f"cannot read {file}: {errors.why_unreadable(error)}") from error
    except errors.MalformedError as error:
        why = error.why.removeprefix("not YAML: ")
        kind = "an archive of rte snapshot --cluster" if archive.is_archive(content) else "YAML"
        raise errors.UsageError(f"{file} is not {kind}: {why}") from error


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
