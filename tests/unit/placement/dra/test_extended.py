"""Extended resources by DRA, and devices that must be made ready."""

from __future__ import annotations

from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.placement.dra import ClaimNode, extended
from rte.placement.dra.binding import ClaimReadiness, readiness
from tests.unit.placement.dra.build import GPU, allocation, claim_of, class_of, request

NAME = "example.com/gpu"
SERVING = extended.classes_by_resource([class_of("gpu", extendedResourceName=NAME)])


def container(name: str, count: int, kind: ContainerKind = ContainerKind.APP) -> Container:
    amounts = {"cpu": 1000, **({NAME: count} if count else {})}
    return Container(name=name, kind=kind, requests=amounts, limits=amounts)


def claim_for(*containers: Container, node: ClaimNode | None = None, resource: str = NAME):
    del resource
    pod = Pod(uid="u", name="p", qos=QOS.GUARANTEED, containers=containers)
    return extended.extended_claim(pod, node or ClaimNode(name="n0"), SERVING)


def requests_of(found) -> dict[str, int]:
    return {r.name: r.exactly.count for r in found.claim.spec.devices.requests}


def test_each_long_lived_container_has_a_request() -> None:
    found = claim_for(
        container("proxy", 1, ContainerKind.SIDECAR), container("a", 0), container("b", 2)
    )

    assert requests_of(found) == {"container-0-request-1": 1, "container-2-request-1": 2}
    assert [(m.container, m.request) for m in found.mappings] == [
        ("proxy", "container-0-request-1"),
        ("b", "container-2-request-1"),
    ]
    assert found.claim.metadata.annotations == {extended.CLAIM_ANNOTATION: "true"}


def test_init_containers_use_what_comes_later_and_add_the_largest_surplus() -> None:
    found = claim_for(
        container("small", 3, ContainerKind.INIT),
        container("large", 5, ContainerKind.INIT),
        container("main", 2),
    )

    assert requests_of(found) == {"container-1-request-1": 3, "container-2-request-1": 2}
    assert [(m.container, m.request) for m in found.mappings] == [
        ("main", "container-2-request-1"),
        ("small", "container-2-request-1"),
        ("small", "container-1-request-1"),
        ("large", "container-2-request-1"),
        ("large", "container-1-request-1"),
    ]


def test_a_device_plugin_goes_first() -> None:
    assert claim_for(container("a", 1), node=ClaimNode(name="n0", allocatable={NAME: 4})) is None
    assert (
        claim_for(container("a", 1), node=ClaimNode(name="n0", allocatable={NAME: 0})) is not None
    )
    assert claim_for(container("a", 0)) is None


def test_the_newest_class_serves_a_name_and_each_class_its_own() -> None:
    old = class_of("a-old", extendedResourceName=NAME)
    new = class_of("b-new", extendedResourceName=NAME)
    stamped = [
        type(old)(
            metadata=type(old.metadata)(name=one.metadata.name, creation_timestamp=stamp),
            spec=one.spec,
        )
        for one, stamp in ((old, "2026-01-01T00:00:00Z"), (new, "2026-02-01T00:00:00Z"))
    ]

    serving = extended.classes_by_resource(stamped)

    assert serving[NAME].metadata.name == "b-new"
    assert serving["deviceclass.resource.kubernetes.io/a-old"].metadata.name == "a-old"
    assert extended.classes_by_resource([new, old])[NAME].metadata.name == "a-old"


def claim_with(*conditions: tuple[str, str], reported: bool = True):
    status = allocation("a", bindingConditions=["ready"], bindingFailureConditions=["broken"])
    if reported:
        found = [{"type": kind, "status": value, "reason": "R"} for kind, value in conditions]
        status["devices"] = [{"driver": GPU, "pool": "n0", "device": "a", "conditions": found}]
    return claim_of(request(), status=status)


def test_devices_with_binding_conditions_are_waited_for() -> None:
    assert readiness(claim_with(reported=False))[0] is ClaimReadiness.WAITING
    assert readiness(claim_with(("ready", "False")))[0] is ClaimReadiness.WAITING
    assert readiness(claim_with(("ready", "True")))[0] is ClaimReadiness.READY
    assert readiness(claim_with(("ready", "True"), ("broken", "True")))[0] is ClaimReadiness.FAILED
    assert readiness(claim_of(request()))[0] is ClaimReadiness.WAITING
    assert readiness(claim_of(request(), status=allocation("a")))[0] is ClaimReadiness.READY
