"""The sub-resource ``scale``: how many pods a workload has, in the same words for every kind.

Source: kubernetes ``pkg/registry/apps/deployment/storage``.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from rte.k8s.selectors import parse_selector
from rte.sim.apiserver import status
from rte.sim.apiserver.schema import typed
from rte.sim.apiserver.storage import selectors
from rte.sim.apiserver.verbs import changing
from rte.sim.apiserver.verbs.bodies import WriteOptions

if TYPE_CHECKING:
    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Obj
    from rte.sim.apiserver.verbs.state import VerbState

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def get(state: VerbState, kind: ServedResource, name: str, namespace: str) -> Obj:
    """The scale of a workload.

    Raises:
        status.StatusError: 404.
    """
    return _scale(state.stored(kind, (namespace, name)))


def _scale(obj: Obj) -> Obj:
    spec, shown = obj["spec"], obj.get("status") or {}
    wanted = parse_selector(spec.get("selector"), "selector")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _KEPT if key in obj["metadata"]},
        "spec": {"replicas": spec["replicas"]} if spec["replicas"] else {},
        "status": {"replicas": shown.get("replicas", 0), "selector": selectors.text(wanted)},
    }


def update(
    state: VerbState,
    kind: ServedResource,
    body: Obj,
    namespace: str,
    *,
    name: str,
    options: WriteOptions | None = None,
) -> Obj:
    """Set the number of pods.

    Raises:
        status.StatusError: 400, 404, 409, 422.
    """
    scale, _ = typed.decode("autoscaling/v1.Scale", body)
    old = state.stored(kind, (namespace, name))
    replicas = scale["spec"].get("replicas", 0)
    if replicas < 0:
        cause = status.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.rejected("Scale", name, [cause], "autoscaling")
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = replicas
    new["metadata"]["resourceVersion"] = scale["metadata"].get("resourceVersion", "")
    options = replace(options or WriteOptions(), scale=True)
    return _scale(changing.update(state, kind, new, namespace, name=name, options=options))


def patch(
    state: VerbState,
    kind: ServedResource,
    name: str,
    body: JsonValue,
    namespace: str,
    *,
    content_type: str,
    options: WriteOptions | None = None,
) -> Obj:
    """Patch the scale.

    Raises:
        status.StatusError: 400, 404, 409, 415, 422.
    """
    before = orjson.loads(orjson.dumps(get(state, kind, name, namespace)))
    after = changing.patched(before, body, content_type, "autoscaling/v1.Scale")
    return update(state, kind, after, namespace, name=name, options=options)
