"""Admission plugins that change or refuse pods.

Sources: kubernetes ``plugin/pkg/admission/{priority,defaulttolerationseconds,runtimeclass}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.sim.apiserver.storage.store import Obj


_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def add_tolerations(pod: Obj) -> None:
    """Admission plugin DefaultTolerationSeconds."""
    tolerations = list(pod["spec"].get("tolerations") or ())
    for key in _NOT_READY:
        if not any(
            t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "")
            for t in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    pod["spec"]["tolerations"] = tolerations


def admit_priority(pod: Obj, classes: Iterable[Obj]) -> None:
    """Admission plugin Priority.

    Raises:
        status.StatusError: 403, the class is unknown or the priority is not the class's.
    """
    spec = pod["spec"]
    table = {item["metadata"]["name"]: item for item in classes}
    name = spec.get("priorityClassName", "")
    if not name:
        defaults = [item for item in table.values() if item.get("globalDefault")]
        chosen = min(defaults, key=lambda item: item["value"]) if defaults else None
        if chosen is not None:
            name = spec["priorityClassName"] = chosen["metadata"]["name"]
    else:
        chosen = table.get(name)
        if chosen is None:
            raise denied(pod, f"no PriorityClass with name {name} was found")
    value = chosen["value"] if chosen else 0
    given = spec.get("priority")
    if given is not None and given != value:
        raise denied(
            pod,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def admit_account(pod: Obj, accounts: Iterable[Obj]) -> None:
    """Admission plugin ServiceAccount, but for the volume with a token: nothing here reads one.

    Namespaces without controllers have no account, and pods there name none.
    """
    spec = pod["spec"]
    if not spec.get("serviceAccountName") and any(
        item["metadata"]["name"] == "default" for item in accounts
    ):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"


def admit_overhead(pod: Obj, classes: Iterable[Obj]) -> None:
    """Admission plugin RuntimeClass: the overhead of the pod is that of its class.

    Raises:
        status.StatusError: 403, unknown class or an overhead that is not the class's.
    """
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    chosen = next((item for item in classes if item["metadata"]["name"] == name), None)
    if name and chosen is None:
        raise denied(pod, f'pod rejected: RuntimeClass "{name}" not found')
    wanted = ((chosen or {}).get("overhead") or {}).get("podFixed") or {}
    given = spec.get("overhead") or {}
    if chosen is None and given:
        raise denied(
            pod,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )
    if wanted and given and given != wanted:
        raise denied(
            pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )
    if wanted:
        spec["overhead"] = dict(wanted)


def denied(pod: Obj, why: str) -> status.StatusError:
    """403 by an admission plugin."""
    return status.denied("pods", pod["metadata"].get("name", ""), why)
