"""Deployments, ReplicaSets, DaemonSets and Jobs: what the API server fills in and refuses.

Sources: kubernetes ``pkg/apis/{apps,batch}/v1/defaults.go``,
``pkg/registry/{apps,batch}/*/strategy.go``
and ``pkg/apis/{apps,batch}/validation/validation.go``. What controllers do with them is
:mod:`rte.sim.controllers`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta, pods
from rte.sim.apiserver.kinds.resource import KindRules, ServedResource, keep_spec, keep_status
from rte.sim.apiserver.storage import selectors

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj

#: Labels that a Job gives to its pods; the first one selects them.
CONTROLLER_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_LEGACY_CONTROLLER_UID, _LEGACY_JOB_NAME = "controller-uid", "job-name"
_JOB_FIXED = (
    "selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex",
    "managedBy", "successPolicy",
)  # fmt: skip


def _default_daemon_set(item: Obj) -> None:
    pods.set_spec_defaults(item["spec"]["template"]["spec"])


def _default_replica_set(item: Obj) -> None:
    item["spec"].setdefault("replicas", 1)
    pods.set_spec_defaults(item["spec"]["template"]["spec"])


def _default_deployment(item: Obj) -> None:
    spec = item["spec"]
    spec.setdefault("replicas", 1)
    pods.set_spec_defaults(spec["template"]["spec"])
    strategy = spec["strategy"]
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _default_job(item: Obj) -> None:
    spec = item["spec"]
    pods.set_spec_defaults(spec["template"]["spec"])
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else (1 << 31) - 1)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not item["metadata"].get("labels"):
        item["metadata"]["labels"] = dict(labels)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replaced)
    spec.setdefault("manualSelector", False)


def _create_job(item: Obj) -> None:
    item["status"] = {}
    spec, metadata = item["spec"], item["metadata"]
    if spec["manualSelector"]:
        return
    template = spec["template"]["metadata"]
    own = {
        CONTROLLER_UID: metadata["uid"],
        JOB_NAME: metadata.get("name", ""),
        _LEGACY_CONTROLLER_UID: metadata["uid"],
        _LEGACY_JOB_NAME: metadata.get("name", ""),
    }
    template["labels"] = {**own, **(template.get("labels") or {})}
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {CONTROLLER_UID: metadata["uid"], **selector.get("matchLabels", {})}


def _create(item: Obj) -> None:
    item["status"] = _STATUS.get(item["kind"], {})


#: Fields of a status that are written also when they are zero.
_STATUS = {
    "ReplicaSet": {"replicas": 0},
    "DaemonSet": {
        "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0,
        "numberReady": 0,
    },
}  # fmt: skip


def _update_deployment(new: Obj, old: Obj) -> None:
    """Annotations count as well: the controller hands them on to ReplicaSets."""
    keep_status(new, old)
    notes = [obj["metadata"].get("annotations") or {} for obj in (new, old)]
    if new["spec"] != old["spec"] or notes[0] != notes[1]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _status_of_deployment(new: Obj, old: Obj) -> None:
    keep_spec(new, old)
    new["metadata"].pop("labels", None)
    if "labels" in old["metadata"]:
        new["metadata"]["labels"] = old["metadata"]["labels"]


def _validate_template(template: Obj) -> list[Cause]:
    labels = template["metadata"].get("labels") or {}
    path = "spec.template.metadata.labels"
    out = [status.invalid(path, key, why) for key in labels for why in meta.qualified_name(key)]
    out += [
        status.invalid(path, value, why)
        for value in labels.values()
        for why in meta.label_value(value)
    ]
    return out + [
        replace(cause, field=f"spec.template.{cause.field}") for cause in pods.validate(template)
    ]


def _validate_selected(item: Obj) -> list[Cause]:
    """Replicas, selector and template of what keeps a number of pods running."""
    spec, kind = item["spec"], item["kind"]
    out: list[Cause] = []
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        if spec.get(name, 0) < 0:
            text = "must be greater than or equal to 0"
            out.append(status.invalid(f"spec.{name}", spec[name], text))
    template, selector = spec["template"], spec.get("selector")
    if selector is None:
        out.append(status.required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        text = f"empty selector is invalid for {kind.lower()}"
        out.append(status.invalid("spec.selector", selector, text))
    labels = template["metadata"].get("labels") or {}
    wanted = selectors.from_label_selector(selector or {})
    if wanted is not None and not all(one.matches(labels) for one in wanted):
        text = "`selector` does not match template `labels`"
        out.append(status.invalid("spec.template.metadata.labels", labels, text))
    out += _validate_template(template)
    policy = template["spec"].get("restartPolicy")
    if policy != "Always":
        out.append(status.unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if kind == "Deployment":
        out += _validate_deployment(spec)
    return out


def _validate_deployment(spec: Obj) -> list[Cause]:
    out: list[Cause] = []
    kinds = ("Recreate", "RollingUpdate")
    if spec["strategy"]["type"] not in kinds:
        out.append(status.unsupported("spec.strategy.type", spec["strategy"]["type"], kinds))
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        text = "must be greater than minReadySeconds"
        value = spec["progressDeadlineSeconds"]
        out.append(status.invalid("spec.progressDeadlineSeconds", value, text))
    return out


def _validate_selected_update(new: Obj, old: Obj) -> list[Cause]:
    out = _validate_selected(new)
    if new["spec"].get("selector") != old["spec"].get("selector"):
        value = new["spec"].get("selector")
        out.append(status.invalid("spec.selector", value, "field is immutable"))
    return out


def _validate_job(item: Obj) -> list[Cause]:
    spec = item["spec"]
    out: list[Cause] = []
    for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"):
        if spec.get(name, 0) < 0:
            text = "must be greater than or equal to 0"
            out.append(status.invalid(f"spec.{name}", spec[name], text))
    out += _validate_template(spec["template"])
    path, policy = "spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        out.append(status.required(path, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        out.append(status.unsupported(path, policy, ("OnFailure", "Never")))
    return out


def _validate_job_update(new: Obj, old: Obj) -> list[Cause]:
    out = _validate_job(new)
    fixed: tuple[str, ...] = _JOB_FIXED
    if new["spec"]["completionMode"] != "Indexed":
        fixed = (*fixed, "completions")
    return out + [
        status.invalid(f"spec.{name}", new["spec"].get(name), "field is immutable")
        for name in fixed
        if new["spec"].get(name) != old["spec"].get(name)
    ]


def workloads() -> list[ServedResource]:
    """The resources of the groups apps and batch."""
    common: dict[str, Any] = {"version": "v1", "namespaced": True, "categories": ("all",)}
    kept: dict[str, Any] = {"status": keep_spec, "generation": ("spec",)}
    return [
        ServedResource(
            group="apps", plural="deployments", kind="Deployment", struct="apps/v1.Deployment",
            short_names=("deploy",), subresources=("status", "scale"), **common,
            rules=KindRules(
                default=_default_deployment, create=_create, validate=_validate_selected,
                update=_update_deployment, validate_update=_validate_selected_update,
                status=_status_of_deployment, generation=("spec",),
            ),
        ),
        ServedResource(
            group="apps", plural="replicasets", kind="ReplicaSet", struct="apps/v1.ReplicaSet",
            short_names=("rs",), subresources=("status", "scale"), **common,
            rules=KindRules(
                default=_default_replica_set, create=_create, validate=_validate_selected,
                update=keep_status, validate_update=_validate_selected_update, **kept,
            ),
        ),
        ServedResource(
            group="apps", plural="daemonsets", kind="DaemonSet", struct="apps/v1.DaemonSet",
            short_names=("ds",), subresources=("status",), **common,
            rules=KindRules(default=_default_daemon_set, update=keep_status, **kept),
        ),
        ServedResource(
            group="batch", plural="jobs", kind="Job", struct="batch/v1.Job",
            subresources=("status",), **common, fields=("status.successful",),
            rules=KindRules(
                default=_default_job, create=_create_job, validate=_validate_job,
                update=keep_status, validate_update=_validate_job_update, **kept,
            ),
        ),
    ]  # fmt: skip
