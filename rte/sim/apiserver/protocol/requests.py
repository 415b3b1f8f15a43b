"""What a request asks for: target, query, form of the answer, body, options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.reader import jsontext, yamltext
from rte.sim.apiserver import status
from rte.sim.apiserver.schema import protobuf, typed
from rte.sim.apiserver.storage import selectors
from rte.sim.apiserver.storage.query import Query
from rte.sim.apiserver.verbs import applying, changing
from rte.sim.apiserver.verbs.bodies import WriteOptions
from rte.sim.apiserver.verbs.deleting import DeleteOptions

if TYPE_CHECKING:
    from aiohttp import web

    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource


_PATCHES = (
    changing.JSON_PATCH, changing.MERGE_PATCH, changing.STRATEGIC_PATCH, applying.APPLY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What a path names."""

    kind: ServedResource
    namespace: str
    name: str
    subresource: str
    watch: bool


@dataclass(frozen=True, slots=True)
class Form:
    """The representation a client accepts: ``""``, ``Table`` or ``PartialObjectMetadata...``."""

    shape: str = ""
    include: str = "Metadata"


def query(request: web.Request, target: RequestTarget) -> Query:
    """What a list or watch selects.

    Raises:
        status.StatusError: 400.
    """
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
    return Query(
        namespace=target.namespace,
        labels=selectors.parse_labels(args.get("labelSelector", "")),
        fields=selectors.parse_fields(args.get("fieldSelector", ""), supported),
        limit=limit,
        token=args.get("continue", ""),
        version=args.get("resourceVersion", ""),
        match=args.get("resourceVersionMatch", ""),
    )


_MATCH = "resourceVersionMatch"


def check_list_options(request: web.Request) -> list[status.Cause]:
    """Source: apimachinery ``pkg/apis/meta/internalversion/validation``."""
    args = request.query
    match, version = args.get(_MATCH, ""), args.get("resourceVersion", "")
    rules = (
        (match and not version, _no_match("forbidden unless resourceVersion is provided")),
        (match and args.get("continue"), _no_match("forbidden when continue is provided")),
        (
            match not in ("", "Exact", "NotOlderThan"),
            status.unsupported(_MATCH, match, ("Exact", "NotOlderThan", "")),
        ),
        (
            match == "Exact" and version == "0",
            status.forbidden(
                _MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            ),
        ),
        (
            "sendInitialEvents" in args,
            status.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"),
        ),
    )
    return [cause for broken, cause in rules if broken]


def check_watch_options(request: web.Request) -> list[status.Cause]:
    """Complaints about the options of a watch."""
    match, initial = request.query.get(_MATCH, ""), "sendInitialEvents" in request.query
    text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    rules = (
        (initial and match != "NotOlderThan", status.forbidden(_MATCH, text)),
        (
            match and not initial,
            _no_match("forbidden for watch unless sendInitialEvents is provided"),
        ),
        (
            match not in ("", "NotOlderThan"),
            status.unsupported(_MATCH, match, ("NotOlderThan",)),
        ),
    )
    return [cause for broken, cause in rules if broken]


def _no_match(why: str) -> status.Cause:
    return status.forbidden(_MATCH, f"resourceVersionMatch is {why}")


def accepted_form(request: web.Request) -> Form:
    """The form of the answer that a client accepts.

    Raises:
        status.StatusError: 406.
    """
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
        return Form(shape, request.query.get("includeObject", "Metadata"))
    raise status.StatusError(
        406,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf",
        details={},
    )


async def read_body(request: web.Request, kind: ServedResource, struct: str = "") -> JsonValue:
    """The object in a request's body; ``struct``: its type, if it is not that of the resource.

    Raises:
        status.StatusError: 400, 415.
    """
    text = await request.read()
    content = request.content_type if "Content-Type" in request.headers else "application/json"
    prefix = (
        f"the object provided is unrecognized (must be of type {kind.kind}): "
        "couldn't get version/kind; json parse error: "
    )
    if content == "application/yaml":
        try:
            return yamltext.load(text, "object", jsontext.BODY)
        except errors.MalformedError as error:
            raise status.bad_request(prefix + error.why) from error
    if content == protobuf.MEDIA_TYPE and kind.struct:
        return protobuf.decode(struct or kind.struct, text)
    if content != "application/json":
        raise status.StatusError(
            415,
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    try:
        body = jsontext.load(text, "object", jsontext.BODY)
    except errors.MalformedError as error:
        shown = text[:40].decode(errors="replace") or "<empty>"
        raise status.bad_request(f"{prefix}{error.why} ({shown})") from error
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise status.bad_request(f"{prefix}json: cannot unmarshal into Go value of type struct")
    return body


async def read_patch(request: web.Request) -> JsonValue:
    """The patch in a request's body.

    Raises:
        status.StatusError: 400, 415.
    """
    if request.content_type not in _PATCHES:
        raise status.StatusError(415, "415: Unsupported Media Type", details={})
    if request.content_type == applying.APPLY:
        try:
            return yamltext.load(await request.read(), "patch", jsontext.BODY)
        except errors.MalformedError as error:
            raise status.bad_request(f"error decoding YAML: {error.why}") from error
    try:
        return jsontext.load(await request.read(), "patch", jsontext.BODY)
    except errors.MalformedError as error:
        raise status.bad_request("invalid JSON patch") from error


def write_options(request: web.Request) -> WriteOptions:
    """Options of a create, update or patch.

    Raises:
        status.StatusError: 422.
    """
    validation = request.query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        cause = status.unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn"))
        raise status.rejected("CreateOptions", "", [cause], "meta.k8s.io")
    return WriteOptions(
        dry_run="All" in request.query.getall("dryRun", []),
        validation=validation,
        manager=request.query.get("fieldManager", ""),
        agent=request.headers.get("User-Agent", "").partition("/")[0],
    )


async def read_delete_options(request: web.Request) -> DeleteOptions:
    """DeleteOptions of a request.

    Raises:
        status.StatusError: 400, 415, 422.
    """
    text = await request.read()
    body: JsonValue = {}
    if text:
        if request.content_type == protobuf.MEDIA_TYPE:
            return delete_options(protobuf.decode("meta/v1.DeleteOptions", text), request)
        try:
            if request.content_type != "application/yaml":
                body = jsontext.load(text, "options", jsontext.BODY)
        except errors.MalformedError as error:
            raise status.bad_request(
                f"couldn't get version/kind; json parse error: {error.why}"
            ) from error
    return delete_options(body, request)


def delete_options(body: JsonValue, request: web.Request) -> DeleteOptions:
    """DeleteOptions of a decoded body and of the query.

    Raises:
        status.StatusError: 400, 422.
    """
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
    return DeleteOptions(
        grace=grace,
        uid=wanted.get("uid"),
        version=wanted.get("resourceVersion"),
        propagation=policy,
        dry_run="All" in (*options.get("dryRun", ()), *args.getall("dryRun", [])),
    )
