"""The pods that Kueue would start for a Workload, as the scheduler would see them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rte import errors
from rte.model.words import counted
from rte.reader.json import JsonObject
from rte.scheduler.framework.objects import read_pod
from rte.scheduler.kueue.claims import claims_of, missing_template
from rte.scheduler.kueue.objects import PodSetAssignment
from rte.scheduler.kueue.promises import Promised

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.placement.dra.objects import ResourceClaim
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shapes
    from rte.scheduler.kueue.objects import Flavor, PodSet, Workload

T = TypeVar("T", JsonObject, list[Any])

#: More pods of one Workload are not judged.
MOST_PODS = 1_000


def pods_of(
    workload: Workload,
    flavors: Mapping[str, Flavor],
    templates: Mapping[str, ResourceClaim],
    shapes: Shapes,
) -> list[Promised] | str:
    """The pods that Kueue would start; a text where something about them is not known yet.

    ``templates``: ResourceClaimTemplates by ``namespace/name``.

    Raises:
        errors.ParseError: no pods can be made of it, whatever happens.
    """
    found: list[Promised] = []
    for each in workload.pod_sets:
        given = workload.assignments.get(each.name, PodSetAssignment(name=each.name))
        missing = sorted(set((given.flavors or {}).values()) - flavors.keys())
        if missing:
            return f"its ResourceFlavor {missing[0]} is not there"
        count = each.count if given.count is None else given.count
        if len(found) + count > MOST_PODS:
            return f"it has more than {MOST_PODS} pods"
        domains = _domains(given, count)
        if domains is None:
            return f"its topologyAssignment of {each.name} is not one of {counted(count, 'pod')}"
        for domain, number in domains:
            pod = read_pod(_pod(workload, each, given, flavors, domain), shapes)
            # A gang's rules are Kueue's own here: all at once.
            pod = replace(pod, gang=None, gang_said=None, gang_problem="")
            if pod.shape.malformed:
                raise errors.ParseError("template", each.name, pod.shape.malformed)
            if lacking := missing_template(pod, templates):
                return f"its ResourceClaimTemplate {lacking} is not there, or may not be read"
            for _ in range(number):
                name = f"{pod.name}-{len(found)}"
                uid = f"{pod.namespace}/{name}"
                copy = replace(pod, name=name, uid=uid, kubelet_uid=uid)
                claims = claims_of(copy, templates)
                names = {entry: claim.claim.name for entry, claim in claims.items()}
                found.append(
                    Promised(
                        pod=replace(copy, claim_names=names),
                        pod_set=each.name,
                        domain=domain,
                        claims=tuple(claims.values()),
                    )
                )
    return found


def heads(found: Iterable[Promised]) -> list[PodView]:
    """One pod of each kind."""
    return list({id(each.pod.shape): each.pod for each in found}.values())


def _domains(given: PodSetAssignment, count: int) -> list[tuple[Mapping[str, str], int]] | None:
    """Labels of nodes, and how many pods of the set go there; None: Kueue contradicts itself."""
    chosen = given.topology_assignment
    if chosen is None:
        return [({}, count)]
    if sum(part.domain_count for part in chosen.slices) > count:  # each has a pod at least
        return None
    try:
        domains: list[tuple[Mapping[str, str], int]] = list(chosen.domains())
    except (IndexError, ValueError):
        return None
    return domains if sum(number for _, number in domains) == count else None


def _pod(
    workload: Workload,
    pod_set: PodSet,
    given: PodSetAssignment,
    flavors: Mapping[str, Flavor],
    domain: Mapping[str, str],
) -> JsonObject:
    """One pod of a set: the template, with what flavors and checks add (pkg/podset, ``Merge``)."""
    additions = [flavors[name].additions for name in dict.fromkeys((given.flavors or {}).values())]
    additions += [
        update
        for check in workload.checks.values()
        for update in check.pod_set_updates or ()
        if update.name == pod_set.name
    ]
    template = pod_set.template
    spec = dict(_taken(template.get("spec"), dict))
    metadata = dict(_taken(template.get("metadata"), dict))
    for field in ("labels", "annotations"):
        metadata[field] = dict(_taken(metadata.get(field), dict))
    spec["nodeSelector"] = dict(_taken(spec.get("nodeSelector"), dict))
    spec["tolerations"] = list(_taken(spec.get("tolerations"), list))
    for each in additions:
        metadata["labels"] |= each.labels or {}
        metadata["annotations"] |= each.annotations or {}
        spec["nodeSelector"] |= each.node_selector or {}
        spec["tolerations"] += each.tolerations or ()
    spec["nodeSelector"] |= domain
    # Gates, Kueue's own among them, are gone when the pod is placed.
    spec.pop("schedulingGates", None)
    spec["priority"] = workload.pod_priority
    metadata |= {"namespace": workload.namespace, "name": f"{workload.name}-{pod_set.name}"}
    metadata["uid"] = f"{workload.key}/{pod_set.name}"
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def _taken(value: object, kind: type[T]) -> T:
    """A part of a template; the API allows null for an empty one."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise errors.ParseError("template", value, f"expected a {kind.__name__}")
    return value
