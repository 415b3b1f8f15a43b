"""What would bring a pod into one place: a smaller request, pod-level resources, another setting.

Each proposal is proven: the pod or the kubelet was changed like that, and asked again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.model import bits, words
from rte.model.pod import QOS, ContainerKind
from rte.model.quantity import ResourceList, format_bytes
from rte.model.totals import peak, totals_of
from rte.placement.kubelet import demand, merge, outcome
from rte.placement.kubelet.admission import admit
from rte.placement.kubelet.releases import FULL_PCPUS_ONLY
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.model.node import KubeletConfig, NodeState
    from rte.model.pod import Container, Pod
    from rte.placement.explain import Explanation, ZoneAnswer

#: Smaller requests are whole CPUs and MiB.
_STEPS = {"cpu": 1000, "memory": 1 << 20}
#: Smaller requests that are tried: a question about many nodes asks each of them.
_MOST_TRIED = 8
_GATES = {"PodLevelResourceManagers": True, "PodLevelResources": True}


def advise(
    state: NodeState, pod: Pod, told: Explanation, room: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """One line for each thing that stands in the way or would help; none where nothing is known.

    Args:
        state: the node.
        pod: that is to go there.
        told: the kubelet's answer to it.
        room: resource -> milli-CPU, bytes or units that the node as a whole has left.
    """
    if told.admission.verdict is outcome.Verdict.UNCERTAIN or pod.qos is not QOS.GUARANTEED:
        return ()
    if told.admission.admitted:
        apart = list(_apart(pod, told))
        return (*apart, *_as_a_whole(state, pod)) if apart else ()
    wanted, room = totals_of(pod), room or {}
    missing = {name: wanted.get(name, 0) - left for name, left in room.items()}
    short = {name: amount for name, amount in missing.items() if amount > 0}
    return (
        *_far_devices(state, pod),
        *_smaller(state, pod, told, short),
        *(() if short else (*_as_a_whole(state, pod), *_setting(state, pod))),
    )


def _far_devices(state: NodeState, pod: Pod) -> Iterator[str]:
    """Devices whose zones have no CPU that a pod may have."""
    if not any(demand.exclusive_cpus(pod, each) for each in pod.containers):
        return
    for name, amount in demand.pod_devices_requested(pod, state.devices).items():
        zones = 0
        for mask in state.devices[name].zones:
            zones |= mask or 0
        given = [state.topology.zone_cpus.get(zone, 0) for zone in bits.members(zones)]
        if amount and given and not any(cpus & ~state.reserved for cpus in given):
            yield f"{name} is in {words.zones(zones)}, where no CPU is for pods: none holds both"


def _smaller(
    state: NodeState, pod: Pod, told: Explanation, short: Mapping[str, int]
) -> Iterator[str]:
    """The largest request for which a zone, and the node as a whole, has room."""
    container = next(
        (each for each in pod.containers if each.name == told.container),
        max(pod.containers, key=lambda each: each.requests.get("cpu", 0)),
    )
    shrunk = (less for zone in told.zones for less in _shrunk(container, zone, short))
    # Zones that have as much are one question.
    found = {tuple(sorted(less.items())): less for less in shrunk}.values()
    ordered = sorted(found, key=lambda less: (-less.get("cpu", 0), -sum(less.values())))
    for less in ordered[:_MOST_TRIED]:
        if admit(state, _asking(pod, container, less)).admitted:
            amounts = ", ".join(f"{name} {_amount(name, less[name])}" for name in sorted(less))
            yield f"would fit with {amounts} in container {container.name}"
            return


def _shrunk(
    container: Container, zone: ZoneAnswer, short: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """What zone and node have in place of what they are ``short`` of, and one CPU less, for whole
    cores.
    """
    less = {}
    for name in sorted(zone.short.keys() | short.keys()):
        of_zone = zone.short.get(name, 0) * (1000 if name == "cpu" else 1)
        left = container.requests.get(name, 0) - max(of_zone, short.get(name, 0))
        less[name] = left // _STEPS.get(name, 1) * _STEPS.get(name, 1)
    if less and all(left > 0 for left in less.values()):
        yield less
        if less.get("cpu", 0) > 1000:
            yield less | {"cpu": less["cpu"] - 1000}


def _asking(pod: Pod, container: Container, amounts: dict[str, int]) -> Pod:
    changed = replace(
        container,
        requests=ResourceList({**container.requests, **amounts}),
        limits=ResourceList({**container.limits, **amounts}),
    )
    containers = tuple(changed if each is container else each for each in pod.containers)
    return replace(pod, containers=containers)


def _apart(pod: Pod, told: Explanation) -> Iterator[str]:
    """Sidecars with CPUs of their own in a zone that no other container is in."""
    apps = {
        zone
        for each in pod.containers
        if each.kind is ContainerKind.APP
        for zone in told.lands.get(each.name, ())
    }
    for each in pod.containers:
        zones = set(told.lands.get(each.name, ()))
        if each.kind is ContainerKind.SIDECAR and zones and apps and not zones & apps:
            where = words.zones(bits.of(zones))
            count = demand.exclusive_cpus(pod, each)
            if count:
                own = words.counted(count, "CPU")
                yield f"sidecar {each.name} takes {own} for itself in {where}, away from the others"


def _as_a_whole(state: NodeState, pod: Pod) -> Iterator[str]:
    """Requests of the pod in place of its sidecars' (KEP-2837, KEP-5526)."""
    sidecars = [
        each
        for each in pod.containers
        if each.kind is ContainerKind.SIDECAR and demand.exclusive_cpus(pod, each)
    ]
    if not sidecars or pod.pod_requests:
        return
    total = peak(pod.containers, lambda container: container.requests)
    asked = ResourceList({name: total[name] for name in ("cpu", "memory") if name in total})
    loose = {each.name: _without(each, asked) for each in sidecars}
    whole = replace(
        pod,
        pod_requests=asked,
        pod_limits=asked,
        containers=tuple(loose.get(each.name, each) for each in pod.containers),
    )
    gate = ""
    if not rules_of(state.config, state.kubelet_version).pod_level_managers:
        gates = {**state.config.feature_gates, **_GATES}
        state = replace(state, config=replace(state.config, feature_gates=gates))
        gate = ", once the kubelet has the gate PodLevelResourceManagers"
        if not rules_of(state.config, state.kubelet_version).pod_level_managers:
            return
    admission = admit(state, whole)
    zones = {state.zones_of(held) for held in admission.holdings.values() if held.cpus}
    if admission.admitted and len(zones) == 1:
        amounts = ", ".join(f"{name} {_amount(name, amount)}" for name, amount in asked.items())
        names = ", ".join(each.name for each in sidecars)
        yield (
            f"would be in one place with pod-level resources ({amounts}) and none for {names}{gate}"
        )


def _without(container: Container, names: ResourceList) -> Container:
    requests, limits = (
        ResourceList({name: amount for name, amount in given.items() if name not in names})
        for given in (container.requests, container.limits)
    )
    return replace(container, requests=requests, limits=limits)


def _setting(state: NodeState, pod: Pod) -> Iterator[str]:
    """The mildest setting of the kubelet under which it would take the pod."""
    for told, config in _settings(state.config):
        if admit(replace(state, config=config), pod).admitted:
            yield f"would fit with the kubelet's {told}, which is for all pods of the node"
            return


def _settings(config: KubeletConfig) -> Iterator[tuple[str, KubeletConfig]]:
    if config.cpu_options.get(FULL_PCPUS_ONLY) == "true":
        options = {**config.cpu_options, FULL_PCPUS_ONLY: "false"}
        yield (
            f'cpuManagerPolicyOptions: {{{FULL_PCPUS_ONLY}: "false"}}',
            replace(config, cpu_options=options),
        )
    if config.topology_scope == "pod":
        yield "topologyManagerScope: container", replace(config, topology_scope="container")
    policies = (merge.SINGLE_NUMA_NODE, merge.RESTRICTED, merge.BEST_EFFORT)
    if config.topology_policy in policies:
        for policy in policies[policies.index(config.topology_policy) + 1 :]:
            yield f"topologyManagerPolicy: {policy}", replace(config, topology_policy=policy)


def _amount(name: str, value: int) -> str:
    if name == "cpu":
        return f"{value / 1000:g}"
    return format_bytes(value) if name.startswith(("memory", "hugepages-")) else str(value)
