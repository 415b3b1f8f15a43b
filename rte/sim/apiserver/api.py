"""The API in process: every verb of the API server as a plain call on JSON objects.

The HTTP server is a thin layer above; scale tests use this class directly. Calls are synchronous
and atomic. Objects handed out are shared with the store: treat them as read-only.

What the real control plane does outside its API server is not done here either: nothing garbage
collects by ownerReferences, finishes a namespace, taints nodes or computes disruption budgets.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from rte.sim.apiserver import custom, meta, patch, pods, resources, selectors, status, typed
from rte.sim.apiserver.store import Key, Obj, Store, Watch, field_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rte.sim.apiserver.resources import Resource
    from rte.sim.apiserver.selectors import FieldRequirement, LabelRequirement

#: Here because :meth:`API.list` hides the type of that name.
Names: TypeAlias = list[str]
Objects: TypeAlias = list[Obj]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_MOVABLE = (
    "Used for system critical pods that must run in the cluster, but can be moved to another node "
    "if necessary."
)
_PRIORITIES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        _MOVABLE,
    ),
)
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class Query:
    """What a list, watch or deletecollection selects and how far back it looks."""

    namespace: str = ""
    name: str = ""
    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""

    def matches(self, key: Key, obj: Obj) -> bool:
        """Whether an object is selected."""
        if self.namespace and key[0] != self.namespace:
            return False
        for wanted in self.fields:
            if (_selectable(obj, wanted.field) == wanted.value) != wanted.equal:
                return False
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            return all(wanted.matches(labels) for wanted in self.labels)
        return True

    @property
    def index(self) -> tuple[str, str] | None:
        """See :class:`rte.sim.apiserver.store.Selection`."""
        for wanted in self.fields:
            if wanted.equal and wanted.field in ("metadata.name", "spec.nodeName"):
                return wanted.field, wanted.value
        return None


def _selectable(obj: Obj, path: str) -> str:
    text = field_text(obj, path)
    if path in ("spec.hostNetwork", "spec.unschedulable"):
        return text or "false"
    if path == "source":
        return field_text(obj, "source.component") or field_text(obj, "reportingComponent")
    return text


@dataclass(slots=True)
class Page:
    """The answer to a list: objects, the version they show and where the next page starts."""

    items: list[Obj]
    version: str
    token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a write. ``warnings`` receives texts for the Warning header."""

    dry_run: bool = False
    validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a delete; see the API's type of the same name."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None
    propagation: str | None = None
    dry_run: bool = False


class API:
    """See the module.

    Args:
        history: changes kept for watches and paged lists; older versions answer 410.
        clock: now, in UTC.
    """

    def __init__(
        self, *, history: int = 10_000, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.store = Store(history)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for item in (*resources.builtin(), custom.DEFINITIONS):
            self._resources[item.group, item.version, item.plural] = item
        for name in _NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})
        for name, value, text in _PRIORITIES:
            self.create(
                "priorityclasses",
                {"metadata": {"name": name}, "value": value, "description": text},
            )

    def served(self) -> Iterable[Resource]:
        """All resources, built-in and custom."""
        return self._resources.values()

    def resource(self, name: str, group: str | None = None, version: str | None = None) -> Resource:
        """Find a resource by plural (``pods``, ``leases.coordination.k8s.io``), group, version.

        Raises:
            status.StatusError: 404, nothing like that is served.
        """
        plural, _, suffix = name.partition(".")
        group = suffix if group is None and suffix else group
        for item in self._resources.values():
            if (
                item.plural == plural
                and group in (None, item.group)
                and version in (None, item.version)
                and (version is not None or self._is_storage(item))
            ):
                return item
        raise status.unknown_resource()

    def _is_storage(self, item: Resource) -> bool:
        """Whether a custom resource's version is the stored one (built-in ones have only one)."""
        if item.definition is None:
            return True
        crd = self.store.get(custom.DEFINITIONS.table, ("", f"{item.plural}.{item.group}"))
        return crd is not None and any(
            v["storage"] and v["name"] == item.version for v in crd["spec"]["versions"]
        )

    def _find(self, resource: str | Resource) -> Resource:
        return self.resource(resource) if isinstance(resource, str) else resource

    def get(self, resource: str | Resource, name: str, namespace: str = "") -> Obj:
        """Read one object.

        Raises:
            status.StatusError: 404.
        """
        kind = self._find(resource)
        return self._shown(kind, self._stored(kind, (namespace, name)))

    def _stored(self, kind: Resource, key: Key) -> Obj:
        obj = self.store.get(kind.table, key)
        if obj is None:
            raise status.not_found(kind.plural, key[1], kind.group)
        return obj

    def list(self, resource: str | Resource, query: Query | None = None) -> Page:
        """List; consistent also across pages.

        Raises:
            status.StatusError: 400, 410 (version compacted), 504 (version in the future).
        """
        kind, query = self._find(resource), query or Query()
        revision, start = self._list_position(query)
        found: list[Obj] = []
        last: Key = ("", "")
        remaining: int | None = None
        token = ""
        limit = max(0, query.limit)
        rows = self.store.items(kind.table, revision)
        shown = self.store.revision if revision is None else revision
        for index, (key, obj) in enumerate(rows):
            if start and _text_key(key) <= start:
                continue
            if not query.matches(key, obj):
                continue
            if limit and len(found) == limit:
                token = _token(shown, _text_key(last))
                if not query.labels and not query.fields:
                    remaining = sum(1 for k, o in rows[index:] if query.matches(k, o))
                break
            found.append(self._shown(kind, obj))
            last = key
        return Page(found, str(shown), token, remaining)

    def _list_position(self, query: Query) -> tuple[int | None, str]:
        if query.token:
            return _read_token(query.token)
        if query.version in ("", "0"):
            return None, ""
        revision = parse_version(query.version)
        if revision > self.store.revision:
            raise too_large(revision, self.store.revision)
        if query.match == "Exact" or (query.limit > 0 and query.match == ""):
            if revision < self.store.compacted:
                raise status.expired("The resourceVersion for the provided list is too old.")
            return revision, ""
        return None, ""

    def watch(
        self, resource: str | Resource, query: Query | None = None, *, initial: bool = False
    ) -> Watch:
        """Watch from ``query.version``: "" and "0" (or ``initial``) begin with all that exists.

        Raises:
            status.StatusError: 410, the version has been compacted.
        """
        kind, query = self._find(resource), query or Query()
        if initial or query.version in ("", "0"):
            watch = self.store.watch(kind.table, query, None)
            for key, obj in self.store.items(kind.table):
                if query.matches(key, obj):
                    watch.push("ADDED", obj)
            return watch
        return self.store.watch(kind.table, query, parse_version(query.version))

    def create(
        self,
        resource: str | Resource,
        obj: Obj,
        namespace: str = "",
        options: Options | None = None,
    ) -> Obj:
        """Create an object; the body is copied.

        Raises:
            status.StatusError: 400, 403, 404 (namespace), 409, 422.
        """
        kind, options = self._find(resource), options or Options()
        new = self._decode(kind, obj, options)
        metadata = new["metadata"]
        if metadata.get("resourceVersion"):
            raise status.StatusError(
                500, "resourceVersion should not be set on objects to be created", reason=""
            )
        self._settle_namespace(kind, new, namespace)
        self._admit_create(kind, new)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._now()
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            metadata["name"] = metadata["generateName"][:58] + suffix
        if kind.rules.generation or kind.definition is not None:
            metadata["generation"] = 1
        kind.rules.create(new)
        causes = meta.validate(metadata, namespaced=kind.namespaced, check_name=kind.check_name)
        causes += kind.rules.validate(new)
        if causes:
            raise self._rejected(kind, metadata.get("name", ""), causes)
        key = (metadata.get("namespace", ""), metadata["name"])
        present = self.store.get(kind.table, key)
        if present is not None:
            ending = bool(present["metadata"].get("deletionTimestamp"))
            raise status.already_exists(kind.plural, key[1], kind.group, ending=ending)
        new["metadata"] = _ordered(metadata)
        if options.dry_run:
            return self._shown(kind, new)
        stored = self.store.put(kind.table, key, new)
        if kind is custom.DEFINITIONS:
            self._serve(stored)
        return self._shown(kind, stored)

    def _settle_namespace(self, kind: Resource, new: Obj, namespace: str) -> None:
        metadata = new["metadata"]
        if not kind.namespaced:
            if metadata.get("namespace"):
                raise status.bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
            return
        if metadata.get("namespace") and namespace and metadata["namespace"] != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if namespace or metadata.get("namespace"):
            metadata["namespace"] = namespace or metadata["namespace"]

    def _admit_create(self, kind: Resource, new: Obj) -> None:
        namespace, name = new["metadata"].get("namespace", ""), new["metadata"].get("name", "")
        if kind.namespaced and namespace:
            home = self.store.get("namespaces", ("", namespace))
            if home is None:
                raise status.not_found("namespaces", namespace)
            if home["metadata"].get("deletionTimestamp"):
                raise status.StatusError(
                    403,
                    f'{kind.plural}{"." + kind.group if kind.group else ""} "{name}" is forbidden: '
                    f"unable to create new content in namespace {namespace} because it is being "
                    "terminated",
                    details={
                        "name": name,
                        **({"group": kind.group} if kind.group else {}),
                        "kind": kind.plural,
                        "causes": [
                            {
                                "reason": "NamespaceTerminating",
                                "message": f"namespace {namespace} is being terminated",
                                "field": "metadata.namespace",
                            }
                        ],
                    },
                )
        if kind.table == "pods":
            pods.admit_priority(new, self._all("priorityclasses.scheduling.k8s.io"))
            pods.admit_overhead(new, self._all("runtimeclasses.node.k8s.io"))
            pods.add_tolerations(new)

    def _all(self, table: str) -> Objects:
        return [obj for _, obj in self.store.items(table)]

    def update(
        self,
        resource: str | Resource,
        obj: Obj,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        options: Options | None = None,
    ) -> Obj:
        """Replace an object, or its status.

        Raises:
            status.StatusError: 400, 404, 409 (stale version, other UID), 422.
        """
        kind, options = self._find(resource), options or Options()
        new = self._decode(kind, obj, options)
        metadata = new["metadata"]
        given = metadata.get("name", "")
        name = name or given
        if not given:
            raise status.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: "
                "name must be provided"
            )
        if given != name:
            raise status.bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
            )
        self._settle_namespace(kind, new, namespace)
        key = (metadata.get("namespace", "") if kind.namespaced else "", name)
        old = self.store.get(kind.table, key)
        if old is None and kind.create_on_update and not subresource:
            body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}
            return self.create(kind, body, namespace, options)
        old = self._stored(kind, key)
        uid = metadata.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise self._uid_conflict(kind, key, uid, old["metadata"]["uid"])
        return self._replace(kind, key, old, new, subresource, options)

    def patch(
        self,
        resource: str | Resource,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        options: Options | None = None,
    ) -> Obj:
        """Patch an object, or its status.

        Raises:
            status.StatusError: 400 (not a patch), 404, 409, 415 (format), 422 (does not apply).
        """
        kind, options = self._find(resource), options or Options()
        key = (namespace if kind.namespaced else "", name)
        old = self._stored(kind, key)
        _check_patch(body, content_type)
        before = orjson.loads(orjson.dumps(self._shown(kind, old)))
        try:
            if content_type == JSON_PATCH:
                after = patch.json_patch(before, body)
            elif content_type == MERGE_PATCH:
                after = patch.merge_patch(before, body)
            elif content_type == STRATEGIC_PATCH and kind.definition is None:
                after = patch.strategic_merge(before, body, kind.struct)
            else:
                raise status.StatusError(415, "415: Unsupported Media Type", details={})
        except patch.PatchError as error:
            if content_type == STRATEGIC_PATCH:
                raise status.StatusError(500, str(error), reason="") from error
            raise status.StatusError(
                422, "the server rejected our request due to an error in our request", details={}
            ) from error
        try:
            new = self._decode(kind, after, options, raw=True)
        except status.DecodeError as error:
            raise status.rejected("", "", [status.invalid("patch", "", str(error))]) from error
        given = new["metadata"].get("name", "")
        if given != name:
            raise status.bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
            )
        self._settle_namespace(kind, new, namespace)
        return self._replace(kind, key, old, new, subresource, options)

    def _replace(
        self, kind: Resource, key: Key, old: Obj, new: Obj, subresource: str, options: Options
    ) -> Obj:
        self._check_version(kind, old, new, subresource)
        before = old["metadata"]
        _keep(new["metadata"], before, "generation")
        if subresource == "status":
            kind.rules.status(new, old)
        elif subresource == "finalize":
            new["status"] = old["status"]
        else:
            if kind.table == "pods":
                pods.add_tolerations(new)
            kind.rules.update(new, old)
        metadata = new["metadata"]
        metadata.setdefault("uid", before["uid"])
        metadata["creationTimestamp"] = before["creationTimestamp"]
        if before.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = before["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in before:
            metadata.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
        self._count_generation(kind, new, old, subresource)
        self._validate_update(kind, new, old, subresource)
        metadata["resourceVersion"] = before["resourceVersion"]
        new["metadata"] = _ordered(metadata)
        if new == old:
            return self._shown(kind, old)
        if options.dry_run:
            return self._shown(kind, new)
        if _finished(kind, new):
            self.store.delete(kind.table, key)  # watchers see it as it was stored
            self._removed(kind, new)
            return self._shown(kind, new)
        stored = self.store.put(kind.table, key, new)
        if kind is custom.DEFINITIONS:
            self._serve(stored)
        return self._shown(kind, stored)

    def _check_version(self, kind: Resource, old: Obj, new: Obj, subresource: str) -> None:
        """Optimistic concurrency: the version that the change is based on must be the present."""
        name = old["metadata"]["name"]
        version = new["metadata"].get("resourceVersion", "")
        if not version or version == "0":
            if not kind.unconditional and not subresource:
                given = 0 if kind.definition is None else "0x0"
                text = "must be specified for an update"
                cause = status.invalid("metadata.resourceVersion", given, text)
                raise status.rejected(kind.plural, name, [cause], kind.group)
        elif not version.isdigit():
            text = f'strconv.ParseUint: parsing "{version}": invalid syntax'
            raise status.StatusError(500, text, reason="")
        elif version != old["metadata"]["resourceVersion"]:
            raise status.conflict(kind.plural, name, group=kind.group)

    def _count_generation(self, kind: Resource, new: Obj, old: Obj, subresource: str) -> None:
        if subresource:
            return
        if kind.definition is not None:
            skip = {"metadata", "kind", "apiVersion"}
            if kind.definition.has_status:
                skip.add("status")
            changed = {k: v for k, v in new.items() if k not in skip} != {
                k: v for k, v in old.items() if k not in skip
            }
        else:
            changed = any(new.get(name) != old.get(name) for name in kind.rules.generation)
        if changed:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _validate_update(self, kind: Resource, new: Obj, old: Obj, subresource: str) -> None:
        causes = meta.validate(
            new["metadata"], namespaced=kind.namespaced, check_name=meta.path_segment
        )
        causes += meta.validate_update(new["metadata"], old["metadata"])
        if subresource == "status":
            causes += kind.rules.validate_status(new, old)
            if kind.definition is not None:
                causes += kind.rules.validate(new)
        elif kind.rules.validate_update is not None:
            causes += kind.rules.validate_update(new, old)
        else:
            causes += kind.rules.validate(new)
        if causes:
            raise self._rejected(kind, new["metadata"]["name"], causes)

    def delete(
        self,
        resource: str | Resource,
        name: str,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> tuple[Obj, bool]:
        """Delete; returns the object and whether it is gone (else it only began to terminate).

        Raises:
            status.StatusError: 404, 409 (precondition).
        """
        kind, options = self._find(resource), options or DeleteOptions()
        key = (namespace if kind.namespaced else "", name)
        old = self._stored(kind, key)
        self._check_preconditions(kind, key, old, options)
        metadata = dict(old["metadata"])
        new = {**old, "metadata": metadata}
        pending, period = self._begin_grace(kind, new, options)
        if pending:
            return self._shown(kind, old), False
        finalizers = self._deletion_finalizers(metadata, options)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if kind.table == "namespaces" and old["spec"].get("finalizers"):
            new["status"] = {**old["status"], "phase": "Terminating"}
            metadata.setdefault("deletionTimestamp", self._now())
            return self._commit_delete(kind, key, old, new, options)
        if finalizers and not period:
            first = not old["metadata"].get("deletionTimestamp")
            if first and kind.table != "pods" and metadata.get("generation"):
                metadata["generation"] += 1
            if metadata.get("deletionTimestamp", "9") > self._now():
                metadata["deletionTimestamp"] = self._now()
            metadata["deletionGracePeriodSeconds"] = 0
        if finalizers or period:
            return self._commit_delete(kind, key, old, new, options)
        if metadata != old["metadata"]:  # a pod's end is seen twice: terminating, then gone
            new, _ = self._commit_delete(kind, key, old, new, options)
        if not options.dry_run:
            new = self.store.delete(kind.table, key, new)
            self._removed(kind, new)
        return self._shown(kind, new), True

    def _commit_delete(
        self, kind: Resource, key: Key, old: Obj, new: Obj, options: DeleteOptions
    ) -> tuple[Obj, bool]:
        new["metadata"] = _ordered(new["metadata"])
        if new != old and not options.dry_run:
            new = self.store.put(kind.table, key, new)
        return self._shown(kind, new), False

    def _begin_grace(self, kind: Resource, new: Obj, options: DeleteOptions) -> tuple[bool, int]:
        """Graceful deletion, which only pods have: (nothing to do but wait, seconds of grace).

        Source: apiserver ``pkg/registry/rest/delete.go`` BeforeDelete.
        """
        metadata = new["metadata"]
        if kind.table != "pods":
            return False, 0
        period = options.grace
        if period is not None and period < 0:
            period = 1
        if metadata.get("deletionTimestamp"):
            left = metadata.get("deletionGracePeriodSeconds") or 0
            if left == 0:
                return False, 0
            if period is None or period >= left:
                return True, left
            shorter = _moment(metadata["deletionTimestamp"]) - timedelta(seconds=left - period)
            now = self._clock()
            if shorter < now:
                shorter, period = now, 1 if period else 0
            metadata["deletionTimestamp"] = _rfc3339(shorter)
            metadata["deletionGracePeriodSeconds"] = period
            return False, period
        if period is None:
            period = max(new["spec"].get("terminationGracePeriodSeconds") or 0, 0)
        if not new["spec"].get("nodeName") or new["status"].get("phase") in ("Failed", "Succeeded"):
            period = 0
        metadata["deletionTimestamp"] = _rfc3339(self._clock() + timedelta(seconds=period))
        metadata["deletionGracePeriodSeconds"] = period
        metadata["generation"] = metadata.get("generation", 0) + 1
        return False, period

    @staticmethod
    def _deletion_finalizers(metadata: Obj, options: DeleteOptions) -> Names:
        """Finalizers for the garbage collector, as the propagation policy asks."""
        finalizers = list(metadata.get("finalizers") or ())
        if options.propagation is None:
            return finalizers
        kept = [name for name in finalizers if name not in ("orphan", "foregroundDeletion")]
        extra = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}
        return kept + extra.get(options.propagation, [])

    def _check_preconditions(
        self, kind: Resource, key: Key, old: Obj, options: DeleteOptions
    ) -> None:
        uid, version = old["metadata"]["uid"], old["metadata"]["resourceVersion"]
        if options.uid is not None and options.uid != uid:
            why = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({uid}). The object might have been deleted and then recreated"
            )
            raise status.conflict(kind.kind, key[1], why, kind.group)
        if options.version is not None and options.version != version:
            why = (
                f"the ResourceVersion in the precondition ({options.version}) does not match the "
                f"ResourceVersion in record ({version}). The object might have been modified"
            )
            raise status.conflict(kind.kind, key[1], why, kind.group)

    def delete_collection(
        self,
        resource: str | Resource,
        query: Query | None = None,
        options: DeleteOptions | None = None,
    ) -> Page:
        """Delete all that the query selects; returns what was selected."""
        kind = self._find(resource)
        page = self.list(kind, query)
        for obj in page.items:
            metadata = obj["metadata"]
            self.delete(kind, metadata["name"], metadata.get("namespace", ""), options)
        return page

    def bind(self, name: str, namespace: str, binding: Obj, options: Options | None = None) -> None:
        """``pods/binding``: give a pod its node.

        Raises:
            status.StatusError: 400, 404, 409 (bound, deleted, gated, other UID), 500 (target).
        """
        body, _ = typed.decode("core/v1.Binding", binding)
        metadata, target = body["metadata"], body["target"]
        if metadata.get("name", "") != name:
            raise status.bad_request("name in URL does not match name in Binding object")
        if target.get("kind", "") not in ("", "Node"):
            raise status.StatusError(
                500,
                f'target.kind: Unsupported value: "{target["kind"]}": '
                'supported values: "Node", "<empty>"',
                reason="",
            )
        if not target.get("name"):
            raise status.StatusError(500, "target.name: Required value", reason="")
        kind, key = self.resource("pods"), (namespace, name)
        pod = self._stored(kind, key)
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if uid and uid != pod["metadata"]["uid"]:
            raise self._uid_conflict(kind, key, uid, pod["metadata"]["uid"])
        if version and version != pod["metadata"]["resourceVersion"]:
            raise status.conflict("pods", name)
        bound = pods.bind(pod, target["name"], body, self._now())
        if not (options and options.dry_run):
            self.store.put("pods", key, bound)

    def evict(self, name: str, namespace: str, options: DeleteOptions | None = None) -> None:
        """``pods/eviction``: delete a pod if its disruption budget allows it.

        Raises:
            status.StatusError: 404, 429 (budget), 500 (more than one budget).
        """
        options = options or DeleteOptions()
        kind, key = self.resource("pods"), (namespace, name)
        pod = self._stored(kind, key)
        phase = pod["status"].get("phase")
        if phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
            self._take_from_budget(pod, options)
        self._check_preconditions(kind, key, pod, options)
        marked = pods.disrupted(pod, self._now())
        if marked != pod and not options.dry_run:
            self.store.put("pods", key, marked)
        self.delete("pods", name, namespace, replace(options, version=None))

    def _take_from_budget(self, pod: Obj, options: DeleteOptions) -> None:
        table, namespace = "poddisruptionbudgets.policy", pod["metadata"]["namespace"]
        budgets = [
            (key, budget)
            for key, budget in self.store.items(table)
            if key[0] == namespace and _covers(budget, pod)
        ]
        if len(budgets) > 1:
            text = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise status.StatusError(500, text, reason="")
        for key, budget in budgets:
            allowed = budget["status"].get("disruptionsAllowed", 0)
            seen = budget["status"].get("observedGeneration", 0)
            stale = seen < budget["metadata"].get("generation", 0)
            if stale or allowed <= 0:
                why = "is still being processed by the server" if stale else "does not allow it"
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {key[1]} {why}.",
                }
                raise status.StatusError(
                    429,
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    details={"causes": [cause], **({"retryAfterSeconds": 10} if stale else {})},
                )
            if not options.dry_run:
                after = {**budget["status"], "disruptionsAllowed": allowed - 1}
                self.store.put(table, key, {**budget, "status": after})

    def _decode(self, kind: Resource, body: Any, options: Options, *, raw: bool = False) -> Obj:
        """Type, prune and default a body. ``raw`` lets decoding errors through as they are."""
        if not isinstance(body, dict):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind})"
            )
        body = _check_type(kind, body)
        prefix = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        try:
            if kind.definition is not None:
                new, unknown = kind.definition.decode(orjson.loads(orjson.dumps(body)))
            else:
                new, unknown = typed.decode(kind.struct, body)
        except status.DecodeError as error:
            if raw:
                raise
            raise status.bad_request(prefix + str(error)) from error
        if unknown:
            texts = [f'unknown field "{path}"' for path in unknown]
            if options.validation == "Strict":
                raise status.bad_request(f"{prefix}strict decoding error: {', '.join(texts)}")
            if options.validation == "Warn":
                options.warnings.extend(texts)
        new.pop("kind", None)
        new.pop("apiVersion", None)
        new["metadata"].pop("managedFields", None)
        if kind.struct == "events/v1.Event":
            new = _core_event(new)
        if kind.struct == "core/v1.Secret" and new.get("stringData"):
            plain = new.pop("stringData")
            encoded = {k: base64.b64encode(v.encode()).decode() for k, v in plain.items()}
            new["data"] = {**new.get("data", {}), **encoded}
        kind.rules.default(new)
        return {"kind": kind.kind, "apiVersion": self._storage_version(kind), **new}

    def _storage_version(self, kind: Resource) -> str:
        if kind.table == "events":
            return "v1"
        if kind.definition is None or self._is_storage(kind):
            return kind.group_version
        crd = self._stored(custom.DEFINITIONS, ("", f"{kind.plural}.{kind.group}"))
        stored = next(v["name"] for v in crd["spec"]["versions"] if v["storage"])
        return f"{kind.group}/{stored}"

    def _shown(self, kind: Resource, obj: Obj) -> Obj:
        """A stored object in the version asked for."""
        if obj["apiVersion"] == kind.group_version:
            return obj
        if kind.struct == "events/v1.Event":
            return _new_event(obj)
        if kind.definition is not None:
            obj = kind.definition.prune(obj)
        return {**obj, "apiVersion": kind.group_version}

    shown = _shown

    def _rejected(
        self, kind: Resource, name: str, causes: Sequence[status.Cause]
    ) -> status.StatusError:
        group = "" if kind.table == "events" else kind.group  # both versions are checked as core's
        return status.rejected(kind.kind, name, list(dict.fromkeys(causes)), group)

    @staticmethod
    def _uid_conflict(kind: Resource, key: Key, wanted: str, found: str) -> status.StatusError:
        path = "/".join(part for part in (_registry(kind), *key) if part)
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in "
            f"object meta: {found}"
        )
        return status.conflict(kind.plural, key[1], why, kind.group)

    def _serve(self, crd: Obj) -> None:
        spec = crd["spec"]
        self._unserve(crd)
        for item in custom.served(crd):
            self._resources[spec["group"], item.version, item.plural] = item

    def _unserve(self, crd: Obj) -> None:
        spec = crd["spec"]
        for version in spec["versions"]:
            self._resources.pop((spec["group"], version["name"], spec["names"]["plural"]), None)

    def _removed(self, kind: Resource, obj: Obj) -> None:
        if kind is custom.DEFINITIONS:
            self._unserve(obj)
            table = obj["metadata"]["name"]
            for key, _ in self.store.items(table):
                self.store.delete(table, key)
            for watch in self.store.watches(table):
                watch.stop()

    def _now(self) -> str:
        return _rfc3339(self._clock())


def _registry(kind: Resource) -> str:
    if kind.table == "nodes":
        return "minions"
    return f"{kind.group}/{kind.plural}" if kind.definition else kind.plural


def _finished(kind: Resource, obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.table == "namespaces" and obj["spec"].get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _keep(new: Obj, old: Obj, name: str) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = old[name]


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


_META_ORDER = {item.name: i for i, item in enumerate(typed.structs()["meta/v1.ObjectMeta"])}


def _ordered(metadata: Obj) -> Obj:
    """Metadata in the order of the real server's answers, empty parts left out."""
    kept = {k: v for k, v in metadata.items() if v not in ("", None, [], {})}
    return dict(sorted(kept.items(), key=lambda item: _META_ORDER[item[0]]))


def parse_version(text: str) -> int:
    """A resourceVersion as a number.

    Raises:
        status.StatusError: 400.
    """
    if not (text.isascii() and text.isdigit()):
        raise status.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def too_large(wanted: int, current: int) -> status.StatusError:
    """504 for a version that does not exist yet."""
    return status.StatusError(
        504,
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def _text_key(key: Key) -> str:
    return f"{key[0]}/{key[1]}" if key[0] else key[1]


def _token(revision: int, last: str) -> str:
    body = {"v": "meta.k8s.io/v1", "rv": revision, "start": last + "\0"}
    return base64.urlsafe_b64encode(orjson.dumps(body)).decode().rstrip("=")


def _read_token(token: str) -> tuple[int | None, str]:
    try:
        body = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(body["rv"]), str(body["start"]).removesuffix("\0")
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise status.bad_request(
            f"invalid continue token: continue key is not valid: {error}"
        ) from error


def _check_type(kind: Resource, body: Obj) -> Obj:
    given, version = body.get("kind") or kind.kind, body.get("apiVersion") or kind.group_version
    if kind.definition is not None and ("kind" not in body or "apiVersion" not in body):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            "Object 'Kind' is missing"
        )
    if version != kind.group_version or given != kind.kind:
        short = str(version).rpartition("/")[2]
        why = (
            f"converting ({short}.{given}) to (core.{kind.kind}): unknown conversion"
            if version == kind.group_version
            else f'no kind "{given}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
        raise status.bad_request(
            f'{given} in version "{short}" cannot be handled as a {kind.kind}: {why}'
        )
    return body


def _check_patch(body: Any, content_type: str) -> None:
    if content_type == JSON_PATCH:
        if not isinstance(body, list) or not all(isinstance(item, dict) for item in body):
            what = "object" if isinstance(body, dict) else "value"
            raise status.bad_request(
                f"error decoding patch: json: cannot unmarshal {what} into Go value of type "
                "[]handlers.jsonPatchOp"
            )
    elif not isinstance(body, dict):
        what = "array" if isinstance(body, list) else "value"
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {what} into Go value of type "
            "map[string]interface {}"
        )


def _covers(budget: Obj, pod: Obj) -> bool:
    wanted = selectors.from_label_selector(budget["spec"].get("selector"))
    labels = pod["metadata"].get("labels") or {}
    return wanted is not None and all(item.matches(labels) for item in wanted)


#: events.k8s.io/v1 name -> core/v1 name, where they differ
_EVENT_NAMES = {
    "reportingController": "reportingComponent",
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def _core_event(event: Obj) -> Obj:
    renamed = {_EVENT_NAMES.get(key, key): value for key, value in event.items()}
    return typed.decode("core/v1.Event", renamed)[0]


def _new_event(event: Obj) -> Obj:
    names = {core: new for new, core in _EVENT_NAMES.items()}
    renamed = {names.get(key, key): value for key, value in event.items()}
    decoded, _ = typed.decode("events/v1.Event", renamed)
    return {**decoded, "kind": "Event", "apiVersion": "events.k8s.io/v1"}
