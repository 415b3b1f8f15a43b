"""The HTTP side of the embedded API server, on aiohttp."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import aiohttp
import orjson
import yaml
from aiohttp import web

from rte import errors
from rte.sim.apiserver import status
from rte.sim.apiserver.api import API
from rte.sim.apiserver.kinds.builtin import SESSIONS
from rte.sim.apiserver.protocol import answers, discovery, faults, openapi, requests
from rte.sim.apiserver.protocol.requests import RequestTarget
from rte.sim.apiserver.storage import selectors
from rte.sim.apiserver.verbs import applying, changing
from rte.telemetry import doors

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rte.reader.json import Json
    from rte.sim.apiserver.protocol.requests import Form
    from rte.sim.apiserver.storage.query import Query
    from rte.sim.apiserver.storage.store import Watch
    from rte.sim.apiserver.verbs.bodies import WriteOptions

_WATCH_SECONDS = (1800, 3600)

#: A watch gets a bookmark so long before its end.
_LAST_BOOKMARK_S = 2.0
_HEALTH = ("/healthz", "/livez", "/readyz")
_MISSING = "404 page not found\n"
_NODE_PROXY = re.compile(r"/api/v1/nodes/([^/]+)/proxy(/.*)?")


class APIServer:
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
        api: API | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: Collection[str] = (),
        version: str = "v1.37.1",
        bookmark_seconds: float = 60.0,
    ) -> None:
        self.api = api or API()
        self.faults = faults.Faults(self.api.store)
        self._host, self._port = host, port
        self._tokens = frozenset(tokens)
        self._version = version
        self._bookmark_seconds = bookmark_seconds
        self._runner: web.AppRunner | None = None
        self._watches: set[Watch] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen.

        Raises:
            errors.KubeError: the address is taken or not ours.
        """
        app = web.Application(client_max_size=8 << 20)
        if doors.is_loopback(self._host):
            app.middlewares.append(doors.own_site)
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
        self._port = self._runner.addresses[0][1]  # the same again after a stop
        self.url = f"http://{self._host}:{self._port}"

    async def stop(self) -> None:
        """End all clients' watches and close the port; who uses the API without it goes on."""
        for watch in self._watches:
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
            return answers.lost(request) if lose else answer
        except status.StatusError as error:
            return answers.failure(error)
        except status.DecodeError as error:
            return answers.failure(status.bad_request(str(error)))
        except ConnectionAbortedError:
            return answers.lost(request)

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
        if target.subresource in SESSIONS:
            return self._without_kubelet(target)
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
        body: Json | None = None
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
                body = openapi.index(served)
            case ["openapi", "v3", "api", version]:
                body = openapi.document(served, "", version)
            case ["openapi", "v3", "apis", group, version]:
                body = openapi.document(served, group, version)
            case _:
                pass
        return None if body is None else answers.json_answer(body)

    def _has(self, group: str, version: str) -> bool:
        return any(r.group == group and r.version == version for r in self.api.served())

    def _target(self, path: str) -> RequestTarget | None:
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
        return RequestTarget(kind, namespace, name, subresource, watch)

    async def _read(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        form = requests.accepted_form(request)
        kind = target.kind
        if target.subresource == "scale":
            scale = self.api.scale(kind, target.name, target.namespace)
            return answers.json_answer(scale)
        if target.subresource not in ("", "status"):
            raise status.method_not_allowed()
        query = requests.query(request, target)
        watching = target.watch or request.query.get("watch") in ("true", "1")
        if watching:
            causes = requests.check_watch_options(request)
        else:
            causes = requests.check_list_options(request) if not target.name else []
        if causes:
            raise status.rejected("ListOptions", "", causes, "meta.k8s.io")
        if watching:
            return await self._watch(request, target, query, form)
        if target.name:
            return answers.object_answer(
                kind, self.api.get(kind, target.name, target.namespace), form
            )
        page = self.api.list(kind, query)
        return answers.list_answer(kind, page, form)

    async def _watch(
        self, request: web.Request, target: RequestTarget, query: Query, form: Form
    ) -> web.StreamResponse:
        initial = request.query.get("sendInitialEvents") in ("true", "1")
        if target.name:
            named = selectors.FieldRequirement("metadata.name", equal=True, value=target.name)
            query = replace(query, fields=(*query.fields, named))
        gone: status.StatusError | None = None
        watch: Watch | None = None
        try:
            watch = self.api.watch(target.kind, query, initial=initial)
            self._watches.add(watch)
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
                stream = answers.Stream(response, target.kind, form)
                await self._stream(request, stream, watch, initial=initial)
            await response.write_eof()
        except (ConnectionResetError, RuntimeError):
            pass  # the client went away: nobody is left to tell
        finally:
            if watch is not None:
                watch.stop()
                self._watches.discard(watch)
        return response

    async def _stream(
        self, request: web.Request, stream: answers.Stream, watch: Watch, *, initial: bool
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
                # Nothing that is told later may be older than the bookmark.
                events, revision = watch.pending(), self.api.store.revision
                await stream.events(events)
                await stream.bookmark(revision)
                next_bookmark = now + self._bookmark_seconds
            wait = min(end, next_bookmark) if bookmarks else end
            await stream.events(await watch.batch(max(wait - now, 0.0)))

    async def _write(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        kind = target.kind
        options = requests.write_options(request)
        match request.method, bool(target.name), target.subresource:
            case "POST", False, "" if bool(target.namespace) == kind.namespaced:
                form = requests.accepted_form(request)
                body = await requests.read_body(request, kind)
                made = self.api.create(kind, body, target.namespace, options)
                return answers.object_answer(kind, made, form, code=201, warnings=options.warnings)
            case "POST", _, "binding":
                body = await requests.read_body(request, kind, "core/v1.Binding")
                name = target.name or str((body.get("metadata") or {}).get("name", ""))
                self.api.bind(name, target.namespace, body, options)
                return answers.success(201)
            case "POST", True, "eviction":
                body = await requests.read_body(request, kind, "policy/v1.Eviction")
                if (body.get("metadata") or {}).get("name", "") != target.name:
                    raise status.bad_request("name in URL does not match name in Eviction object")
                self.api.evict(
                    target.name,
                    target.namespace,
                    requests.delete_options(body.get("deleteOptions") or {}, request),
                )
                return answers.success(201)
            case "PUT", True, "" | "status" | "finalize":
                form = requests.accepted_form(request)
                return await self._put(request, target, options, form)
            case "PUT" | "PATCH", True, "scale":
                return await self._set_scale(request, target, options)
            case "PATCH", True, "" | "status":
                form = requests.accepted_form(request)
                return await self._patch(request, target, options, form)
            case "DELETE", True, "":
                return await self._delete(request, target)
            case "DELETE", False, "" if kind.table != "namespaces":
                query = requests.query(request, target)
                given = await requests.read_delete_options(request)
                page = self.api.delete_collection(kind, query, given)
                return answers.list_answer(kind, page, requests.accepted_form(request))
            case _:
                raise status.method_not_allowed()

    async def _put(
        self, request: web.Request, target: RequestTarget, options: WriteOptions, form: Form
    ) -> web.Response:
        body = await requests.read_body(request, target.kind)
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
        return answers.object_answer(target.kind, after, form, code=code, warnings=options.warnings)

    async def _patch(
        self, request: web.Request, target: RequestTarget, options: WriteOptions, form: Form
    ) -> web.Response:
        if request.content_type == changing.STRATEGIC_PATCH and target.kind.definition is not None:
            raise status.StatusError(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml",
            )
        body = await requests.read_patch(request)
        if request.content_type == applying.APPLY:
            key = (target.namespace if target.kind.namespaced else "", target.name)
            existed = self.api.store.get(target.kind.table, key) is not None
            after = self.api.apply(
                target.kind,
                target.name,
                body,
                target.namespace,
                options=options,
                force=request.query.get("force") in ("true", "1"),
                subresource=target.subresource,
            )
            code = 200 if existed else 201
            return answers.object_answer(
                target.kind, after, form, code=code, warnings=options.warnings
            )
        after = self.api.patch(
            target.kind,
            target.name,
            body,
            target.namespace,
            content_type=request.content_type,
            subresource=target.subresource,
            options=options,
        )
        return answers.object_answer(target.kind, after, form, warnings=options.warnings)

    async def _set_scale(
        self, request: web.Request, target: RequestTarget, options: WriteOptions
    ) -> web.Response:
        kind = target.kind
        if request.method == "PUT":
            body, patching = await requests.read_body(request, kind, "autoscaling/v1.Scale"), ""
        else:
            body, patching = await requests.read_patch(request), request.content_type
        scale = self.api.set_scale(
            kind, target.name, body, target.namespace, content_type=patching, options=options
        )
        return answers.json_answer(scale, warnings=options.warnings)

    def _without_kubelet(self, target: RequestTarget) -> web.Response:
        """Logs and sessions, which a kubelet would answer: containers are simulated here."""
        pod = self.api.get(target.kind, target.name, target.namespace)
        if pod["spec"].get("nodeName"):
            raise status.StatusError(
                501,
                "containers are simulated here: nothing runs in them, so there are no logs, and "
                "nothing to attach to",
            )
        if target.subresource == "log":  # the real server finds no kubelet to ask: no text
            return web.Response(text="")
        raise status.bad_request(f"pod {target.name} does not have a host assigned")

    async def _delete(self, request: web.Request, target: RequestTarget) -> web.Response:
        kind = target.kind
        given = await requests.read_delete_options(request)
        obj, gone = self.api.delete(kind, target.name, target.namespace, given)
        if kind.returns_object or not gone:
            return answers.object_answer(kind, obj, requests.accepted_form(request))
        details = {
            "name": target.name,
            **({"group": kind.group} if kind.group else {}),
            "kind": kind.plural,
            "uid": obj["metadata"]["uid"],
        }
        return answers.json_answer(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }
        )
