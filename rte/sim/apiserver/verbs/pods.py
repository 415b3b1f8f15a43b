"""The sub-resources of pods: binding and eviction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.k8s import selectors
from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import pods
from rte.sim.apiserver.schema import typed
from rte.sim.apiserver.verbs import bodies, deleting
from rte.sim.apiserver.verbs.deleting import DeleteOptions

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Obj
    from rte.sim.apiserver.verbs.bodies import WriteOptions
    from rte.sim.apiserver.verbs.state import VerbState


def bind(
    state: VerbState, name: str, namespace: str, binding: Obj, options: WriteOptions | None = None
) -> None:
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
    kind, key = state.resource("pods"), (namespace, name)
    pod = state.stored(kind, key)
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != pod["metadata"]["uid"]:
        raise bodies.uid_conflict(kind, key, uid, pod["metadata"]["uid"])
    if version and version != pod["metadata"]["resourceVersion"]:
        raise status.conflict("pods", name)
    bound = pods.bind(pod, target["name"], body, state.now())
    if not (options and options.dry_run):
        state.store.put("pods", key, bound)


def evict(
    state: VerbState, name: str, namespace: str, options: DeleteOptions | None = None
) -> None:
    """``pods/eviction``: delete a pod if its disruption budget allows it.

    Raises:
        status.StatusError: 404, 429 (budget), 500 (more than one budget).
    """
    options = options or DeleteOptions()
    kind, key = state.resource("pods"), (namespace, name)
    pod = state.stored(kind, key)
    phase = pod["status"].get("phase")
    if phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
        _take_from_budget(state, pod, options)
    deleting.check_preconditions(kind, key, pod, options)
    marked = pods.disrupted(pod, state.now())
    if marked != pod and not options.dry_run:
        state.store.put("pods", key, marked)
    deleting.delete(state, kind, name, namespace, replace(options, version=None))


def _take_from_budget(state: VerbState, pod: Obj, options: DeleteOptions) -> None:
    table, namespace = "poddisruptionbudgets.policy", pod["metadata"]["namespace"]
    budgets = [
        (key, budget)
        for key, budget in state.store.items(table)
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
            state.store.put(table, key, {**budget, "status": after})


def _covers(budget: Obj, pod: Obj) -> bool:
    wanted = selectors.parse_selector(budget["spec"].get("selector"), "selector")
    return wanted.matches(pod["metadata"].get("labels") or {})
