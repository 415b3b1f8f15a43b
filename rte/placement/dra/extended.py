"""Extended resources that DRA serves (``extendeddynamicresources.go``).

A container asks for ``nvidia.com/gpu: 1`` as ever. On a node whose device plugin has none of it, a
device class with that ``extendedResourceName`` serves it: the pod gets a claim of its own, made for
the node, and its status tells which request of the claim is for which container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.k8s.wire import Metadata, OwnerReference
from rte.model.pod import ContainerKind
from rte.placement.dra.objects import (
    ClaimSpec,
    DeviceClaim,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.pod import Container, Pod
    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import DeviceClass

#: Every class serves the resource of this prefix and its own name.
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
#: The claim's name until it is written; no claim of the API can be called so.
CLAIM_NAME = "<extended-resources>"
#: Annotation of the written claim.
CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """An entry of ``pod.status.extendedResourceClaimStatus.requestMappings``."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim that a pod needs on a node, and which request serves which container."""

    claim: ResourceClaim
    mappings: tuple[RequestMapping, ...]


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Resource name -> the class that serves it: of several the newest, then the lowest name."""
    ordered = sorted(classes, key=lambda one: one.name)
    ordered.sort(key=lambda one: one.metadata.creation_timestamp or "", reverse=True)
    serving: dict[str, DeviceClass] = {}
    for one in ordered:
        serving[IMPLICIT_PREFIX + one.name] = one
        if one.spec.extended_resource_name:
            serving.setdefault(one.spec.extended_resource_name, one)
    return serving


def extended_claim(
    pod: Pod, node: ClaimNode, serving: Mapping[str, DeviceClass]
) -> ExtendedClaim | None:
    """The claim for what the pod asks of extended resources that DRA serves on the node.

    None where nothing of the kind is asked for, or the node's device plugins serve it. ``serving``
    is that of :func:`classes_by_resource`.
    """
    asked = {name for container in pod.containers for name, n in container.requests.items() if n}
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource in sorted(asked & serving.keys()):
        if not node.allocatable.get(resource):
            more, mapped = _requests(pod.containers, resource, serving[resource].name)
            requests += more
            mappings += mapped
    if not requests:
        return None
    requests.sort(key=lambda request: request.name)
    owner = OwnerReference(kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    metadata = Metadata(
        name=CLAIM_NAME,
        namespace=pod.namespace,
        annotations={CLAIM_ANNOTATION: "true"},
        owner_references=(owner,),
    )
    spec = ClaimSpec(DeviceClaim(requests=tuple(requests)))
    return ExtendedClaim(ResourceClaim(metadata=metadata, spec=spec), tuple(mappings))


def _requests(
    containers: Sequence[Container], resource: str, class_name: str
) -> tuple[list[DeviceRequest], list[RequestMapping]]:
    """One request for each container that lives as long as the pod, and one for the largest surplus
    of ordinary init containers, which use the devices of later containers before their own.
    """
    names: dict[int, str] = {}
    counts: dict[int, int] = {}
    mappings: list[RequestMapping] = []
    for place, container in enumerate(containers):
        count = container.requests.get(resource, 0)
        if container.kind is not ContainerKind.INIT and count:
            names[place] = _request_name(place, container, resource)
            counts[place] = count
            mappings.append(RequestMapping(container.name, resource, names[place]))
    surplus = 0
    surplus_name = ""
    init_mappings: list[tuple[str, str | None]] = []
    for place, container in enumerate(containers):
        missing = container.requests.get(resource, 0)
        if container.kind is not ContainerKind.INIT or not missing:
            continue
        for later in sorted(names):
            if later > place and missing > 0:
                init_mappings.append((container.name, names[later]))
                missing -= counts[later]
        if missing > 0:
            init_mappings.append((container.name, None))
            if missing > surplus:
                surplus, surplus_name = missing, _request_name(place, container, resource)
    mappings += [
        RequestMapping(name, resource, request or surplus_name) for name, request in init_mappings
    ]
    requests = [_exactly(names[place], class_name, counts[place]) for place in sorted(names)]
    if surplus:
        requests.append(_exactly(surplus_name, class_name, surplus))
    return requests, mappings


def _request_name(place: int, container: Container, resource: str) -> str:
    return f"container-{place}-request-{sorted(container.requests).index(resource)}"


def _exactly(name: str, class_name: str, count: int) -> DeviceRequest:
    return DeviceRequest(name, exactly=ExactRequest(device_class_name=class_name, count=count))
