"""Create: admission, defaults, rules."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta, pods
from rte.sim.apiserver.verbs import bodies, ownership
from rte.sim.apiserver.verbs.bodies import WriteOptions

if TYPE_CHECKING:
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Obj
    from rte.sim.apiserver.verbs.state import VerbState


#: Metadata that no client chooses on create.
_SERVERS = (
    "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "managedFields",
)  # fmt: skip
#: What would do something on a real cluster, and does nothing here.
_WITHOUT_CONTROLLER = (
    "batch/v1.CronJob", "core/v1.ReplicationController", "autoscaling/v2.HorizontalPodAutoscaler",
)  # fmt: skip
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def create(
    state: VerbState,
    kind: ServedResource,
    obj: Obj,
    namespace: str = "",
    options: WriteOptions | None = None,
    *,
    entries: list[Obj] | None = None,
) -> Obj:
    """Create an object; the body is copied. ``entries``: who owns its fields, if that is settled.

    Raises:
        status.StatusError: 400, 403, 404 (namespace), 409, 422.
    """
    options = options or WriteOptions()
    new = bodies.decode(state, kind, obj, options)
    metadata = new["metadata"]
    if metadata.get("resourceVersion"):
        raise status.StatusError(
            500, "resourceVersion should not be set on objects to be created", reason=""
        )
    settle_namespace(kind, new, namespace)
    _admit_create(state, kind, new)
    for name in _SERVERS:
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = state.now()
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
        metadata["name"] = metadata["generateName"][:58] + suffix
    if kind.rules.generation or kind.definition is not None:
        metadata["generation"] = 1
    kind.rules.create(new)
    if not kind.is_stored:
        return bodies.shown(kind, new)
    causes = meta.validate(metadata, namespaced=kind.namespaced, check_name=kind.check_name)
    causes += kind.rules.validate(new)
    if causes:
        raise bodies.rejected(kind, metadata.get("name", ""), causes)
    key = (metadata.get("namespace", ""), metadata["name"])
    present = state.store.get(kind.table, key)
    if present is not None:
        ending = bool(present["metadata"].get("deletionTimestamp"))
        raise status.already_exists(kind.plural, key[1], kind.group, ending=ending)
    if entries is None and options.manager:
        writer = ownership.FieldOwner(options.manager)
        entries = ownership.after_update(kind, [], None, new, writer, state.now())
    if entries:
        metadata["managedFields"] = entries
    new["metadata"] = bodies.ordered(metadata)
    if options.dry_run:
        return bodies.shown(kind, new)
    stored = state.store.put(kind.table, key, new)
    state.wrote(kind, stored)
    return bodies.shown(kind, stored)


def settle_namespace(kind: ServedResource, new: Obj, namespace: str) -> None:
    """The namespace of the request counts for a namespaced object.

    Raises:
        status.StatusError: 400, body and request contradict each other.
    """
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
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace or metadata.get("namespace"):
        metadata["namespace"] = namespace or metadata["namespace"]


def _admit_create(state: VerbState, kind: ServedResource, new: Obj) -> None:
    namespace, name = new["metadata"].get("namespace", ""), new["metadata"].get("name", "")
    if kind.namespaced and namespace:
        home = state.store.get("namespaces", ("", namespace))
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
    if kind.struct in _WITHOUT_CONTROLLER:
        why = f"no controller for {kind.plural} runs here, so nothing would come of it"
        raise status.denied(kind.plural, name, why, kind.group)
    if kind.table == "pods":
        account = state.store.get("serviceaccounts", (namespace, "default"))
        pods.admit_account(new, [account] if account else [])
        pods.admit_priority(new, _all(state, "priorityclasses.scheduling.k8s.io"))
        pods.admit_overhead(new, _all(state, "runtimeclasses.node.k8s.io"))
        pods.add_tolerations(new)


def _all(state: VerbState, table: str) -> list[Obj]:
    return [obj for _, obj in state.store.items(table)]
