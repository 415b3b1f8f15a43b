"""Answers: objects, lists, tables, failures and the events of a watch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from rte.sim.apiserver.kubectl import tables
from rte.sim.apiserver.schema import typed
from rte.sim.apiserver.verbs import bodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import Json
    from rte.sim.apiserver import status
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.protocol.requests import Form
    from rte.sim.apiserver.storage.query import StoredPage
    from rte.sim.apiserver.storage.store import Obj


class Stream:
    """Writes watch events in the form the client accepts."""

    def __init__(self, response: web.StreamResponse, kind: ServedResource, form: Form) -> None:
        self._response, self._kind, self._form = response, kind, form
        self._header = True

    async def events(self, batch: Sequence[tuple[str, Obj]]) -> None:
        """Write a batch of events."""
        if batch:
            lines = [
                orjson.dumps({"type": kind, "object": self._render(obj)}) for kind, obj in batch
            ]
            await self._response.write(b"\n".join(lines) + b"\n")

    async def bookmark(self, revision: int, *, first: bool = False) -> None:
        """Tell how far the watch has come."""
        kind = self._kind
        metadata: Obj = {"resourceVersion": str(revision)}
        if first:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        empty = typed.decode(kind.struct, {})[0] if kind.struct else {}
        obj = {**empty, "kind": kind.kind, "apiVersion": kind.group_version, "metadata": metadata}
        if self._form.shape == "Table":
            obj = tables.table(kind, [], {"resourceVersion": str(revision)}, header=self._header)
        await self._response.write(orjson.dumps({"type": "BOOKMARK", "object": obj}) + b"\n")

    def _render(self, obj: Obj) -> Obj:
        obj = bodies.shown(self._kind, obj)
        if self._form.shape == "Table":
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            out = tables.table(
                self._kind, [obj], version, include=self._form.include, header=self._header
            )
            self._header = False
            return out
        if self._form.shape.startswith("PartialObjectMetadata"):
            return tables.partial(obj)
        return obj


def lost(request: web.Request) -> web.Response:
    """Break the connection: nothing of the answer arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499)


def json_answer(body: Json, code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    """JSON, with a header for each warning."""
    response = web.Response(body=orjson.dumps(body), status=code, content_type="application/json")
    for text in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(text)}")
    return response


def success(code: int) -> web.Response:
    """A Status object that says no more than that."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code,
    }
    return json_answer(body, code)


def failure(error: status.StatusError) -> web.Response:
    """The Status object of a refusal."""
    response = json_answer(error.body, error.status)
    after = (error.body.get("details") or {}).get("retryAfterSeconds")
    if after is not None:
        response.headers["Retry-After"] = str(after)
    return response


def object_answer(
    kind: ServedResource, obj: Obj, form: Form, *, code: int = 200, warnings: Sequence[str] = ()
) -> web.Response:
    """One object in the form that the client accepts."""
    if form.shape == "Table":
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        obj = tables.table(kind, [obj], version, include=form.include)
    elif form.shape.startswith("PartialObjectMetadata"):
        obj = tables.partial(obj)
    return json_answer(obj, code, warnings)


def list_answer(kind: ServedResource, page: StoredPage, form: Form) -> web.Response:
    """A list in the form that the client accepts."""
    metadata: Obj = {"resourceVersion": page.version}
    if page.token or kind.definition is not None:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if form.shape == "Table":
        return json_answer(tables.table(kind, page.items, metadata, include=form.include))
    items: list[Obj] = page.items
    if form.shape.startswith("PartialObjectMetadata"):
        return json_answer(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": [tables.partial(obj) for obj in items],
            }
        )
    if kind.definition is None:
        items = [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in items]
    return json_answer(
        {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.group_version,
            "metadata": metadata,
            "items": items,
        }
    )
