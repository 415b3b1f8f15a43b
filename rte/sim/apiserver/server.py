"""The HTTP side of the embedded API server, on aiohttp."""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import orjson
import yaml
from aiohttp import web

from rte import errors
from rte.sim.apiserver import api as core
from rte.sim.apiserver import discovery, faults, selectors, status, tables, typed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from rte.sim.apiserver.resources import Resource
    from rte.sim.apiserver.store import Obj, Watch

_WATCH_SECONDS = (1800, 3600)

#: A watch gets a bookmark so long before its end.
_LAST_BOOKMARK_S = 2.0
_HEALTH = ("/healthz", "/livez", "/readyz")
_MISSING = "404 page not found\n"
_NODE_PROXY = re.compile(r"/api/v1/nodes/([^/]+)/proxy(/.*)?")
_PATCHES = (core.JSON_PATCH, core.MERGE_PATCH, core.STRATEGIC_PATCH)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a path names."""

    kind: Resource
    namespace: str
    name: str
    subresource: str
    watch: bool


@dataclass(frozen=True, slots=True)
class _Form:
    """The representation a client accepts: ``""``, ``Table`` or ``PartialObjectMetadata...``."""

    shape: str = ""
    include: str = "Metadata"


class Server:
    """The API on a TCP port: ``async with Server() as server: ... server.url``.

    Args:
        api: the objects; a new empty API by default.
        host: address to listen on.
        port: 0 picks a free one.
        tokens: bearer tokens that are accepted; none means no authentication.
        version: what ``/version`` says.
        bookmark_seconds: how often watches that allow it get a bookmark.
    """

    def __init__(
        self,
        api: core.API | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: Collection[str] = (),
        version: str = "v1.37.1",
        bookmark_seconds: float = 60.0,
    ) -> None:
        self.api = api or core.API()
        self.faults = faults.Faults(self.api.store)
        self._host, self._port = host, port
        self._tokens = frozenset(tokens)
        self._version = version
        self._bookmark_seconds = bookmark_seconds
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen.

        Raises:
            errors.KubeError: the address is taken or not ours.
        """
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise errors.KubeError(
                f"the embedded API server cannot listen on {self._host}:{self._port}: "
                f"{error.strerror or error}; choose another port"
            ) from error
        port = self._runner.addresses[0][1]
        self.url = f"http://{self._host}:{port}"

    async def stop(self) -> None:
        """End all watches and close the port."""
        for watch in self.api.store.watches():
            watch.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for this server (with the first token, if any)."""
        token = min(self._tokens, default="")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rte", "cluster": {"server": self.url}}],
            "users": [{"name": "rte", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "rte", "context": {"cluster": "rte", "user": "rte"}}],
            "current-context": "rte",
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        path.chmod(0o600)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            lose = await self.faults.gate(request.method, request.path_qs)
            self._authenticate(request)
            answer = await self._route(request)
            return _lost(request) if lose else answer
        except status.StatusError as error:
            return _failure(error)
        except status.DecodeError as error:
            return _failure(status.bad_request(str(error)))
        except ConnectionAbortedError:
            return _lost(request)

    def _authenticate(self, request: web.Request) -> None:
        if not self._tokens:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self._tokens:
            raise status.StatusError(401, "Unauthorized")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in _HEALTH or path.startswith(tuple(f"{p}/" for p in _HEALTH)):
            return web.Response(text="ok")
        document = self._document(request)
        if document is not None:
            return document
        if match := _NODE_PROXY.fullmatch(path):
            return await self._ask_kubelet(match[1], match[2] or "/")
        target = self._target(path)
        if target is None:
            return web.Response(status=404, text=_MISSING)
        if target.subresource and target.subresource not in target.kind.subresources:
            raise status.unknown_resource()
        if request.method == "GET":
            return await self._read(request, target)
        return await self._write(request, target)

    async def _ask_kubelet(self, name: str, path: str) -> web.Response:
        """``nodes/NAME/proxy/PATH``: the kubelet's own answer (over plain HTTP)."""
        node = self.api.get("nodes", name)["status"]
        port = node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        host = next((a["address"] for a in node.get("addresses") or () if a["address"]), "")
        if not (host and port):
            raise status.StatusError(503, f"node {name} does not tell its kubelet's address")
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{host}:{port}{path}") as answer,
            ):
                return web.Response(
                    body=await answer.read(),
                    status=answer.status,
                    content_type=answer.content_type,
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            why = f"error trying to reach service: {error}"
            raise status.StatusError(503, why) from error

    def _document(self, request: web.Request) -> web.Response | None:
        """Discovery, version and OpenAPI."""
        served = list(self.api.served())
        parts = [part for part in request.path.split("/") if part]
        wants = "apidiscovery.k8s.io" in request.headers.get("Accept", "")
        body: Mapping[str, Any] | None = None
        match parts:
            case ["version"]:
                body = discovery.version(self._version)
            case ["api" | "apis"] if wants:
                core_only = parts[0] == "api"
                text = orjson.dumps(discovery.aggregated(served, core=core_only))
                return web.Response(
                    body=text, headers={"Content-Type": discovery.AGGREGATED, "Vary": "Accept"}
                )
            case ["api"]:
                body = {
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": [
                        {"clientCIDR": "0.0.0.0/0", "serverAddress": self.url.partition("//")[2]}
                    ],
                }
            case ["apis"]:
                body = discovery.group_list(served)
            case ["api", "v1"]:
                body = discovery.resource_list(served, "", "v1")
            case ["apis", group]:
                body = discovery.group(served, group)
            case ["apis", group, version] if self._has(group, version):
                body = discovery.resource_list(served, group, version)
            case ["openapi", "v3"]:
                body = discovery.openapi_v3_index(served)
            case ["openapi", "v3", "api", version]:
                body = discovery.openapi_v3(served, "", version)
            case ["openapi", "v3", "apis", group, version]:
                body = discovery.openapi_v3(served, group, version)
            case _:
                pass
        return None if body is None else _json(body)

    def _has(self, group: str, version: str) -> bool:
        return any(r.group == group and r.version == version for r in self.api.served())

    def _target(self, path: str) -> _Target | None:
        parts = [part for part in path.split("/") if part]
        if parts[:1] == ["api"] and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[:1] == ["apis"] and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        if not any(r.group == group for r in self.api.served()):
            return None
        watch = rest[0] == "watch"
        rest = rest[1:] if watch else rest
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        if not rest or len(rest) > 3:
            raise status.unknown_resource()
        plural, name, subresource = (*rest, "", "")[:3]
        if (group, plural) == ("", "bindings"):
            plural, subresource = "pods", "binding"
        kind = self.api.resource(plural, group, version)
        if namespace and not kind.namespaced:
            raise status.unknown_resource()
        if name and kind.namespaced and not namespace:
            raise status.unknown_resource()
        return _Target(kind, namespace, name, subresource, watch)

    async def _read(self, request: web.Request, target: _Target) -> web.StreamResponse:
        form = _accepted(request)
        kind = target.kind
        if target.subresource not in ("", "status"):
            raise status.method_not_allowed()
        query = _query(request, target)
        watching = target.watch or request.query.get("watch") in ("true", "1")
        if watching:
            causes = _check_watch_options(request)
        else:
            causes = _check_list_options(request) if not target.name else []
        if causes:
            raise status.rejected("ListOptions", "", causes, "meta.k8s.io")
        if watching:
            return await self._watch(request, target, query, form)
        if target.name:
            return _object(kind, self.api.get(kind, target.name, target.namespace), form)
        page = self.api.list(kind, query)
        return _list(kind, page, form)

    async def _watch(
        self, request: web.Request, target: _Target, query: core.Query, form: _Form
    ) -> web.StreamResponse:
        initial = request.query.get("sendInitialEvents") in ("true", "1")
        if target.name:
            named = selectors.FieldRequirement("metadata.name", equal=True, value=target.name)
            query = replace(query, fields=(*query.fields, named))
        gone: status.StatusError | None = None
        watch: Watch | None = None
        try:
            watch = self.api.watch(target.kind, query, initial=initial)
        except status.StatusError as error:
            if error.status == 400:
                text = str(error).removeprefix("invalid resource version: ")
                raise status.StatusError(500, text, reason="") from error
            gone = error
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            if watch is None:
                body = gone.body if gone else {}
                await response.write(orjson.dumps({"type": "ERROR", "object": body}) + b"\n")
            else:
                stream = _Stream(response, target.kind, form, self.api)
                await self._stream(request, stream, watch, initial=initial)
            await response.write_eof()
        except (ConnectionResetError, RuntimeError):
            pass  # the client went away: nobody is left to tell
        finally:
            if watch is not None:
                watch.stop()
        return response

    async def _stream(
        self, request: web.Request, stream: _Stream, watch: Watch, *, initial: bool
    ) -> None:
        bookmarks = request.query.get("allowWatchBookmarks") in ("true", "1")
        text = request.query.get("timeoutSeconds", "")
        seconds = float(text) if text.isdigit() and int(text) else random.uniform(*_WATCH_SECONDS)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        # As the API server: now and then, and 2 s before the end.
        next_bookmark = loop.time() + self._bookmark_seconds
        if seconds > _LAST_BOOKMARK_S:
            next_bookmark = min(next_bookmark, end - _LAST_BOOKMARK_S)
        await stream.events(watch.pending())
        if initial and bookmarks:
            await stream.bookmark(self.api.store.revision, first=True)
        while not watch.stopped and (now := loop.time()) < end:
            if bookmarks and now >= next_bookmark:
                await stream.bookmark(self.api.store.revision)
                next_bookmark = now + self._bookmark_seconds
            wait = min(end, next_bookmark) if bookmarks else end
            await stream.events(await watch.batch(max(wait - now, 0.0)))

    async def _write(self, request: web.Request, target: _Target) -> web.StreamResponse:
        kind = target.kind
        options = _write_options(request)
        match request.method, bool(target.name), target.subresource:
            case "POST", False, "" if bool(target.namespace) == kind.namespaced:
                form = _accepted(request)
                body = await _body(request, kind)
                made = self.api.create(kind, body, target.namespace, options)
                return _object(kind, made, form, code=201, warnings=options.warnings)
            case "POST", _, "binding":
                body = await _body(request, kind)
                name = target.name or str((body.get("metadata") or {}).get("name", ""))
                self.api.bind(name, target.namespace, body, options)
                return _success(201)
            case "POST", True, "eviction":
                body = await _body(request, kind)
                if (body.get("metadata") or {}).get("name", "") != target.name:
                    raise status.bad_request("name in URL does not match name in Eviction object")
                self.api.evict(
                    target.name,
                    target.namespace,
                    _delete_options(body.get("deleteOptions") or {}, request),
                )
                return _success(201)
            case "PUT", True, "" | "status" | "finalize":
                form = _accepted(request)
                return await self._put(request, target, options, form)
            case "PATCH", True, "" | "status":
                form = _accepted(request)
                return await self._patch(request, target, options, form)
            case "DELETE", True, "":
                return await self._delete(request, target)
            case "DELETE", False, "" if kind.table != "namespaces":
                query = _query(request, target)
                given = await _delete_body(request)
                page = self.api.delete_collection(kind, query, given)
                return _list(kind, page, _accepted(request))
            case _:
                raise status.method_not_allowed()

    async def _put(
        self, request: web.Request, target: _Target, options: core.Options, form: _Form
    ) -> web.Response:
        body = await _body(request, target.kind)
        key = (target.namespace, target.name)
        existed = self.api.store.get(target.kind.table, key) is not None
        after = self.api.update(
            target.kind,
            body,
            target.namespace,
            name=target.name,
            subresource=target.subresource,
            options=options,
        )
        code = 200 if existed else 201
        return _object(target.kind, after, form, code=code, warnings=options.warnings)

    async def _patch(
        self, request: web.Request, target: _Target, options: core.Options, form: _Form
    ) -> web.Response:
        if request.content_type not in _PATCHES:
            raise status.StatusError(415, "415: Unsupported Media Type", details={})
        if request.content_type == core.STRATEGIC_PATCH and target.kind.definition is not None:
            raise status.StatusError(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml",
            )
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise status.bad_request("invalid JSON patch") from error
        after = self.api.patch(
            target.kind,
            target.name,
            body,
            target.namespace,
            content_type=request.content_type,
            subresource=target.subresource,
            options=options,
        )
        return _object(target.kind, after, form, warnings=options.warnings)

    async def _delete(self, request: web.Request, target: _Target) -> web.Response:
        kind = target.kind
        given = await _delete_body(request)
        obj, gone = self.api.delete(kind, target.name, target.namespace, given)
        if kind.returns_object or not gone:
            return _object(kind, obj, _accepted(request))
        details = {
            "name": target.name,
            **({"group": kind.group} if kind.group else {}),
            "kind": kind.plural,
            "uid": obj["metadata"]["uid"],
        }
        return _json(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }
        )


class _Stream:
    """Writes watch events in the form the client accepts."""

    def __init__(
        self, response: web.StreamResponse, kind: Resource, form: _Form, api: core.API
    ) -> None:
        self._response, self._kind, self._form, self._api = response, kind, form, api
        self._header = True

    async def events(self, batch: Sequence[tuple[str, Obj]]) -> None:
        if batch:
            lines = [
                orjson.dumps({"type": kind, "object": self._render(obj)}) for kind, obj in batch
            ]
            await self._response.write(b"\n".join(lines) + b"\n")

    async def bookmark(self, revision: int, *, first: bool = False) -> None:
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
        obj = self._api.shown(self._kind, obj)
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


def _lost(request: web.Request) -> web.Response:
    """Break the connection: nothing of the answer arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499)


def _query(request: web.Request, target: _Target) -> core.Query:
    args = request.query
    kind = target.kind

    def supported(name: str) -> bool:
        return (
            name in kind.fields
            or name == "metadata.name"
            or (name == "metadata.namespace" and (kind.namespaced or kind.definition is not None))
        )

    text = args.get("limit", "")
    try:
        limit = int(text) if text else 0
    except ValueError as error:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error
    return core.Query(
        namespace=target.namespace,
        labels=selectors.parse_labels(args.get("labelSelector", "")),
        fields=selectors.parse_fields(args.get("fieldSelector", ""), supported),
        limit=limit,
        token=args.get("continue", ""),
        version=args.get("resourceVersion", ""),
        match=args.get("resourceVersionMatch", ""),
    )


_MATCH = "resourceVersionMatch"


def _check_list_options(request: web.Request) -> list[status.Cause]:
    """Source: apimachinery ``pkg/apis/meta/internalversion/validation``."""
    args, out = request.query, list[status.Cause]()
    match, version = args.get(_MATCH, ""), args.get("resourceVersion", "")
    if match:
        if not version:
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            out.append(status.forbidden(_MATCH, text))
        if args.get("continue"):
            text = "resourceVersionMatch is forbidden when continue is provided"
            out.append(status.forbidden(_MATCH, text))
        if match not in ("Exact", "NotOlderThan"):
            out.append(status.unsupported(_MATCH, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            out.append(status.forbidden(_MATCH, text))
    if "sendInitialEvents" in args:
        text = "sendInitialEvents is forbidden for list"
        out.append(status.forbidden("sendInitialEvents", text))
    return out


def _check_watch_options(request: web.Request) -> list[status.Cause]:
    args, out = request.query, list[status.Cause]()
    match = args.get(_MATCH, "")
    if "sendInitialEvents" in args and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        out.append(status.forbidden(_MATCH, text))
    if match:
        if "sendInitialEvents" not in args:
            text = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            out.append(status.forbidden(_MATCH, text))
        if match != "NotOlderThan":
            out.append(status.unsupported(_MATCH, match, ("NotOlderThan",)))
    return out


def _accepted(request: web.Request) -> _Form:
    accept = request.headers.get("Accept", "") or "*/*"
    for item in accept.split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        if media not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(part.partition("=")[::2] for part in parameters)
        shape = values.get("as", "")
        if shape and (values.get("g", "meta.k8s.io"), values.get("v", "v1")) != (
            "meta.k8s.io",
            "v1",
        ):
            continue
        if shape not in ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            continue
        return _Form(shape, request.query.get("includeObject", "Metadata"))
    raise status.StatusError(
        406,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf",
        details={},
    )


async def _body(request: web.Request, kind: Resource) -> Any:
    text = await request.read()
    content = request.content_type if "Content-Type" in request.headers else "application/json"
    prefix = (
        f"the object provided is unrecognized (must be of type {kind.kind}): "
        "couldn't get version/kind; json parse error: "
    )
    if content == "application/yaml":
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise status.bad_request(prefix + str(error).replace("\n", " ")) from error
    if content != "application/json":
        raise status.StatusError(
            415,
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        shown = text[:40].decode(errors="replace") or "<empty>"
        raise status.bad_request(f"{prefix}{error} ({shown})") from error
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise status.bad_request(f"{prefix}json: cannot unmarshal into Go value of type struct")
    return body


def _write_options(request: web.Request) -> core.Options:
    validation = request.query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        cause = status.unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn"))
        raise status.rejected("CreateOptions", "", [cause], "meta.k8s.io")
    return core.Options(dry_run="All" in request.query.getall("dryRun", []), validation=validation)


async def _delete_body(request: web.Request) -> core.DeleteOptions:
    text = await request.read()
    body: Any = {}
    if text:
        if request.content_type == "application/vnd.kubernetes.protobuf":
            raise status.StatusError(415, "415: Unsupported Media Type", details={})
        try:
            body = orjson.loads(text) if request.content_type != "application/yaml" else {}
        except orjson.JSONDecodeError as error:
            raise status.bad_request(
                f"couldn't get version/kind; json parse error: {error}"
            ) from error
    return _delete_options(body, request)


def _delete_options(body: Any, request: web.Request) -> core.DeleteOptions:
    given = body.get("kind") if isinstance(body, dict) else None
    if given not in (None, "", "DeleteOptions"):
        raise status.bad_request(
            f'no kind "{given}" is registered for version "meta.k8s.io/v1" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    options, _ = typed.decode("meta/v1.DeleteOptions", body)
    args = request.query
    grace = options.get("gracePeriodSeconds")
    if "gracePeriodSeconds" in args:
        try:
            grace = int(args["gracePeriodSeconds"])
        except ValueError as error:
            raise status.bad_request(
                f'strconv.ParseInt: parsing "{args["gracePeriodSeconds"]}": invalid syntax'
            ) from error
    policy = options.get("propagationPolicy") or args.get("propagationPolicy")
    if policy is not None and policy not in ("Orphan", "Background", "Foreground"):
        cause = status.unsupported(
            "propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil")
        )
        raise status.rejected("DeleteOptions", "", [cause], "meta.k8s.io")
    orphan = options.get("orphanDependents")
    if orphan is not None and policy is None:
        policy = "Orphan" if orphan else "Background"
    wanted = options.get("preconditions") or {}
    return core.DeleteOptions(
        grace=grace,
        uid=wanted.get("uid"),
        version=wanted.get("resourceVersion"),
        propagation=policy,
        dry_run="All" in (*options.get("dryRun", ()), *args.getall("dryRun", [])),
    )


def _json(body: Mapping[str, Any], code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    response = web.Response(body=orjson.dumps(body), status=code, content_type="application/json")
    for text in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(text)}")
    return response


def _success(code: int) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code,
    }
    return _json(body, code)


def _failure(error: status.StatusError) -> web.Response:
    response = _json(error.body, error.status)
    after = (error.body.get("details") or {}).get("retryAfterSeconds")
    if after is not None:
        response.headers["Retry-After"] = str(after)
    return response


def _object(
    kind: Resource, obj: Obj, form: _Form, *, code: int = 200, warnings: Sequence[str] = ()
) -> web.Response:
    if form.shape == "Table":
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        obj = tables.table(kind, [obj], version, include=form.include)
    elif form.shape.startswith("PartialObjectMetadata"):
        obj = tables.partial(obj)
    return _json(obj, code, warnings)


def _list(kind: Resource, page: core.Page, form: _Form) -> web.Response:
    metadata: Obj = {"resourceVersion": page.version}
    if page.token or kind.definition is not None:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if form.shape == "Table":
        return _json(tables.table(kind, page.items, metadata, include=form.include))
    items: list[Obj] = page.items
    if form.shape.startswith("PartialObjectMetadata"):
        return _json(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": [tables.partial(obj) for obj in items],
            }
        )
    if kind.definition is None:
        items = [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in items]
    return _json(
        {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.group_version,
            "metadata": metadata,
            "items": items,
        }
    )
