"""What keeps pods running, and Jobs: what the API server fills in and refuses.

Sources: kubernetes ``pkg/apis/{apps,batch}/v1/defaults.go``,
``pkg/registry/{apps,batch}/*/strategy.go``
and ``pkg/apis/{apps,batch}/validation/validation.go``. What controllers do with them is
:mod:`rte.sim.controllers`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.k8s import selectors
from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta, pods
from rte.sim.apiserver.kinds.resource import KindRules, keep_spec, keep_status

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


#: How often the template of a DaemonSet has changed.
GENERATION = "deprecated.daemonset.template.generation"
_STATEFUL_FREE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _default_template(item: Obj) -> None:
    pods.default_spec(item["spec"]["template"]["spec"])


def _default_deployment(item: Obj) -> None:
    _default_template(item)
    strategy = item["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _default_daemon_set(item: Obj) -> None:
    _default_template(item)
    strategy = item["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    notes = item["metadata"].setdefault("annotations", {})
    notes.setdefault(GENERATION, "1")


def _default_stateful_set(item: Obj) -> None:
    _default_template(item)
    strategy = item["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    for claim in item["spec"].get("volumeClaimTemplates") or ():
        claim.update(apiVersion="v1", kind="PersistentVolumeClaim", status={"phase": "Pending"})


def _default_job(item: Obj) -> None:
    spec = item["spec"]
    _default_template(item)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else (1 << 31) - 1)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not item["metadata"].get("labels"):
        item["metadata"]["labels"] = dict(labels)
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replaced)


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
    item["status"] = dict(_STATUS.get(item["kind"], {}))


#: Fields of a status that are written also when they are zero.
_STATUS = {
    "ReplicaSet": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
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


def _update_daemon_set(new: Obj, old: Obj) -> None:
    """The template is counted by itself."""
    keep_status(new, old)
    count = int((old["metadata"].get("annotations") or {}).get(GENERATION, 1))
    changed = new["spec"]["template"] != old["spec"]["template"]
    new["metadata"].setdefault("annotations", {})[GENERATION] = str(count + changed)


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
    if not selectors.parse_selector(selector or {}, "selector").matches(labels):
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


def _validate_stateful_update(new: Obj, old: Obj) -> list[Cause]:
    out = _validate_selected(new)
    before, after = (
        {name: value for name, value in obj["spec"].items() if name not in _STATEFUL_FREE}
        for obj in (old, new)
    )
    if before != after:
        names = ", ".join(f"'{name}'" for name in _STATEFUL_FREE[:-1])
        text = f"updates to statefulset spec for fields other than {names} and "
        text += f"'{_STATEFUL_FREE[-1]}' are forbidden"
        out.append(status.forbidden("spec", text))
    return out


_SELECTED = KindRules(
    default=_default_template, create=_create, validate=_validate_selected,
    validate_update=_validate_selected_update, generation=("spec",),
)  # fmt: skip
#: By struct.
RULES = {
    "apps/v1.Deployment": replace(
        _SELECTED, default=_default_deployment, update=_update_deployment,
        status=_status_of_deployment,
    ),
    "apps/v1.ReplicaSet": _SELECTED,
    "apps/v1.DaemonSet": replace(
        _SELECTED, default=_default_daemon_set, update=_update_daemon_set
    ),
    "apps/v1.StatefulSet": replace(
        _SELECTED, default=_default_stateful_set, validate_update=_validate_stateful_update
    ),
    "batch/v1.Job": KindRules(
        default=_default_job, create=_create_job, validate=_validate_job,
        validate_update=_validate_job_update, generation=("spec",),
    ),
}  # fmt: skip
