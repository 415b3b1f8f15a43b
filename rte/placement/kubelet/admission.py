"""The life of pods on a node as its kubelet's resource managers see it.

Sources: pkg/kubelet/cm/topologymanager (scope_*.go), and the ``manager`` types of the CPU, memory
and device manager. A pod's overhead and the node's totals are no matter of the managers: the
kubelet checks totals afterwards, against a pod that may already hold something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from rte.model.node import Holding, NodeState
from rte.model.pod import QOS, ContainerKind
from rte.placement.kubelet import cpus, devices, layout, memory, merge, outcome
from rte.placement.kubelet.outcome import Admission, Merge, Verdict
from rte.placement.kubelet.rules import has_pod_level_resources, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rte.model.bits import CPUSet, Mask, ZoneSet
    from rte.model.node import MemoryBlock, ZoneMemory
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.outcome import Hint, ProviderHints
    from rte.placement.kubelet.rules import Rules

#: Executions that are tried to find out whether a random pick of devices matters.
MAX_EXECUTIONS = 64
_TOPOLOGY_TEXT = "Resources cannot be allocated with Topology locality"


def admit(state: NodeState, pod: Pod) -> Admission:
    """What the kubelet will answer to a new pod.

    The state must be settled: what it holds of pods that are gone counts as held. The verdict is
    ``uncertain`` where a random pick of devices by the kubelet decides, and for kubelets and pods
    that the rules do not cover; the reason says which.
    """
    first, choices = _run(state, pod, ())
    if not choices.options or not _picks_matter(state, pod):
        return first
    for tried, (other, _) in enumerate(_executions(state, pod), start=1):
        if other.verdict is not first.verdict or tried == MAX_EXECUTIONS:
            return _uncertain(
                state,
                outcome.DEVICE_CHOICE,
                "the answer depends on which devices the kubelet picks at random",
            )
    return first


def execute(state: NodeState, pod: Pod) -> Admission:
    """What one kubelet answers: the one that picks devices in ascending order (for simulation)."""
    return _run(state, pod, ())[0]


def possible_states(state: NodeState, pod: Pod) -> tuple[NodeState, ...] | None:
    """Every state that admitting the pod may leave behind, counting devices of one zone set as
    equal; None when they are too many, or when the pod is not surely admitted.
    """
    states: list[NodeState] = []
    for tried, (admission, _) in enumerate(_executions(state, pod), start=1):
        if not admission.admitted or tried > MAX_EXECUTIONS:
            return None
        states.append(admission.state)
    return tuple(states)


def start(state: NodeState, pod: Pod) -> NodeState:
    """The node when all containers of the pod were started: the memory of ordinary init containers
    is free again; their CPUs and devices stay until the pod goes.
    """
    held = state.holdings.get(pod.uid)
    if not held:
        return state
    rows = state.memory
    containers = dict(held)
    for container in pod.containers:
        holding = containers.get(container.name)
        if container.kind is ContainerKind.INIT and holding is not None and holding.memory:
            rows = memory.release(rows, holding.memory)
            containers[container.name] = structs.replace(holding, memory=())
    if rows is state.memory:
        return state
    return replace(state, memory=rows, holdings={**state.holdings, pod.uid: containers})


def remove(state: NodeState, uid: str) -> NodeState:
    """The node when a pod is gone and the kubelet has noticed."""
    return _drop(state, [uid])


def settle(state: NodeState, active: frozenset[str]) -> NodeState:
    """What the kubelet holds at its next admission: nothing of pods that are not active.

    ``active`` are the UIDs that the kubelet regards as running or about to run.
    """
    return _drop(state, [uid for uid in {*state.holdings, *state.admitted} if uid not in active])


def _drop(state: NodeState, uids: Iterable[str]) -> NodeState:
    gone = sorted(uids)
    if not any(uid in state.holdings or uid in state.admitted for uid in gone):
        return state
    shared, rows = state.shared, state.memory
    for uid in gone:
        for _, holding in sorted(state.holdings.get(uid, {}).items()):
            shared |= holding.cpus
            if holding.memory:
                rows = memory.release(rows, holding.memory)
    return replace(
        state,
        shared=shared,
        memory=rows,
        holdings={uid: held for uid, held in state.holdings.items() if uid not in gone},
        admitted=state.admitted.difference(gone),
    )


def _executions(state: NodeState, pod: Pod) -> Iterator[tuple[Admission, devices.Choices]]:
    """Every execution that a random pick of devices can lead to."""
    script: tuple[int, ...] | None = ()
    while script is not None:
        admission, choices = _run(state, pod, script)
        yield admission, choices
        script = choices.next_script()


def _picks_matter(state: NodeState, pod: Pod) -> bool:
    """Whether a later container asks for a resource again, so that the first pick can matter."""
    seen: set[str] = set()
    for container in pod.containers:
        names = devices.requested(container, state.devices).keys()
        if seen & names:
            return True
        seen |= names
    return False


def _uncertain(state: NodeState, reason: str, message: str) -> Admission:
    return Admission(verdict=Verdict.UNCERTAIN, reason=reason, message=message, state=state)


def _run(state: NodeState, pod: Pod, script: tuple[int, ...]) -> tuple[Admission, devices.Choices]:
    choices = devices.Choices(script)
    try:
        rules = rules_of(state.config, state.kubelet_version)
        _check_predictable(state, pod, rules)
        kubelet = _Managers(state, pod, rules, choices)
        return kubelet.admit(), choices
    except outcome.Unpredictable as unknown:
        return _uncertain(state, unknown.reason, unknown.message), choices


def _check_predictable(state: NodeState, pod: Pod, rules: Rules) -> None:
    if pod.uid in state.holdings or pod.uid in state.admitted:
        raise outcome.Unpredictable(
            outcome.ALREADY_KNOWN, "the kubelet already knows this pod (remove it first)"
        )
    if rules.pod_level_managers and has_pod_level_resources(pod):
        raise outcome.Unpredictable(
            outcome.POD_LEVEL_MANAGERS,
            "pod-level resources under the alpha feature gate PodLevelResourceManagers",
        )


class _Failed(Exception):  # noqa: N818 - carries who stopped the admission, and where
    def __init__(self, manager: str, container: str, stop: outcome.Stop) -> None:
        self.manager = manager
        self.container = container
        self.stop = stop
        super().__init__(stop.message)


class _Managers:
    """The managers of one kubelet during one admission."""

    def __init__(self, state: NodeState, pod: Pod, rules: Rules, choices: devices.Choices) -> None:
        self.state = state
        self.pod = pod
        self.rules = rules
        self.choices = choices
        self.layout = layout.of(state.topology)
        ignored = rules.pod_level_ignored and has_pod_level_resources(pod)
        pinned = pod.qos is QOS.GUARANTEED and not ignored
        self.cpu_options = rules.cpu if pinned else None
        self.memory_pinned = pinned and rules.memory
        self.shared: CPUSet = state.shared
        self.rows: Mapping[int, ZoneMemory] = state.memory
        self.reusable_cpus: CPUSet = 0
        self.reusable_memory: dict[tuple[ZoneSet, str], int] = {}
        self.reusable_devices: dict[str, Mask] = {}
        self.devices_in_use: dict[str, Mask] = {}
        self.cpus: dict[str, CPUSet] = {}
        self.blocks: dict[str, tuple[MemoryBlock, ...]] = {}
        self.devices: dict[str, dict[str, Mask]] = {}
        self.hints: dict[str, Hint] = {}
        self.merges: list[Merge] = []

    # The topology manager's scopes.

    def admit(self) -> Admission:
        try:
            if self.rules.policy == merge.NONE:
                for container in self.pod.containers:
                    self._allocate(container, (None, False))
            elif self.rules.pod_scope:
                hint = self._merge("*", self._pod_hints)
                for container in self.pod.containers:
                    self.hints[container.name] = hint
                    self._allocate(container, hint)
            else:
                for container in self.pod.containers:
                    hint = self._merge(container.name, lambda: self._container_hints(container))  # noqa: B023
                    self.hints[container.name] = hint
                    self._allocate(container, hint)
        except _Failed as failed:
            return self._refusal(failed)
        return self._admission(Verdict.ADMITTED)

    def _merge(
        self,
        name: str,
        ask: Callable[[], tuple[ProviderHints, ProviderHints, ProviderHints]],
    ) -> Hint:
        try:
            providers = ask()
        except outcome.Breaks as stop:
            raise _Failed("memory", name, stop) from stop
        distances = None
        if self.rules.prefer_closest:
            distances = {zone.id: zone.distances for zone in self.state.topology.zones}
        best, admitted = merge.merge(
            self.rules.policy, providers, self.state.topology.zone_mask, distances
        )
        self.merges.append(Merge(name, providers, best, admitted))
        if not admitted:
            refusal = outcome.Refused(outcome.TOPOLOGY_AFFINITY_ERROR, _TOPOLOGY_TEXT)
            raise _Failed("topology", name, refusal)
        return best

    def _container_hints(
        self, container: Container
    ) -> tuple[ProviderHints, ProviderHints, ProviderHints]:
        wanted_cpus = cpus.exclusive_cpus(self.pod, container) if self.cpu_options else 0
        return (
            self._device_hints(devices.requested(container, self.state.devices), reuse=True),
            self._cpu_hints(wanted_cpus),
            self._memory_hints(memory.requested(container)) if self.memory_pinned else None,
        )

    def _pod_hints(self) -> tuple[ProviderHints, ProviderHints, ProviderHints]:
        wanted_cpus = cpus.pod_exclusive_cpus(self.pod) if self.cpu_options else 0
        return (
            self._device_hints(devices.pod_requested(self.pod, self.state.devices), reuse=False),
            self._cpu_hints(wanted_cpus),
            self._memory_hints(memory.pod_requested(self.pod)) if self.memory_pinned else None,
        )

    # Hint providers.

    def _device_hints(self, wanted: Mapping[str, int], *, reuse: bool) -> ProviderHints:
        zones = tuple(zone.id for zone in self.state.topology.zones)
        return {
            name: devices.hints(
                self.state.devices[name],
                zones,
                self._in_use(name),
                self.reusable_devices.get(name, 0) if reuse else 0,
                amount,
                device_zones_only=self.rules.device_zones_only,
            )
            for name, amount in wanted.items()
        }

    def _cpu_hints(self, count: int) -> ProviderHints:
        if not count or self.cpu_options is None:
            return None
        return {
            "cpu": cpus.hints(
                self.layout, self.cpu_options, self._assignable(), self.reusable_cpus, count
            )
        }

    def _memory_hints(self, wanted: Mapping[str, int]) -> ProviderHints:
        offered = memory.hints(self.rows, wanted, self.reusable_memory)
        # No combination at all: no opinion, not "impossible"; the allocation fails later.
        return dict.fromkeys(wanted, offered) if offered else {}

    def _assignable(self) -> CPUSet:
        return self.shared & ~self.state.reserved

    def _in_use(self, resource: str) -> Mask:
        if resource not in self.devices_in_use:
            self.devices_in_use[resource] = devices.held(self.state, resource)
        return self.devices_in_use[resource]

    # Allocation: devices, CPUs, memory.

    def _allocate(self, container: Container, hint: Hint) -> None:
        for manager, allocate in (
            ("devices", self._allocate_devices),
            ("cpu", self._allocate_cpus),
            ("memory", self._allocate_memory),
        ):
            try:
                allocate(container, hint)
            except (outcome.Refused, outcome.Breaks) as stop:
                raise _Failed(manager, container.name, stop) from stop

    def _allocate_devices(self, container: Container, hint: Hint) -> None:
        for name, amount in devices.requested(container, self.state.devices).items():
            pool = self.state.devices[name]
            reusable = self.reusable_devices.get(name, 0)
            affinity = hint[0] if devices.has_zones(pool) else None
            taken = devices.allocate(
                name, pool, self._in_use(name), reusable, amount, affinity, self.choices
            )
            if taken:
                self.devices.setdefault(container.name, {})[name] = taken
                self.devices_in_use[name] |= taken
            if container.kind is ContainerKind.INIT:
                self.reusable_devices[name] = reusable | taken
            else:
                self.reusable_devices[name] = reusable & ~taken

    def _allocate_cpus(self, container: Container, hint: Hint) -> None:
        if self.cpu_options is None:
            return
        count = cpus.exclusive_cpus(self.pod, container)
        if not count:
            return
        if self.cpu_options.full_pcpus_only:
            cpus.check_full_cores(self.layout, self.shared, self.state.reserved, count)
        allocatable = self._assignable() | self.reusable_cpus
        taken = cpus.allocate(self.layout, self.cpu_options, allocatable, count, hint[0])
        self.cpus[container.name] = taken
        self.shared &= ~taken
        if container.kind is ContainerKind.INIT:
            self.reusable_cpus |= taken
        else:
            self.reusable_cpus &= ~taken

    def _allocate_memory(self, container: Container, hint: Hint) -> None:
        if not self.memory_pinned:
            return
        wanted = memory.requested(container)
        if not wanted and self.rules.memoryless_skipped:
            return
        self.rows, blocks = memory.allocate(self.rows, wanted, self.reusable_memory, hint)
        self.blocks[container.name] = blocks
        for block in blocks:
            key = (block.zones, block.resource)
            reusable = self.reusable_memory.get(key, 0)
            if container.kind is ContainerKind.INIT:
                self.reusable_memory[key] = max(reusable, block.size)
            elif reusable:
                self.reusable_memory[key] = max(0, reusable - block.size)
        self._shrink_init_blocks(container, blocks)

    def _shrink_init_blocks(self, container: Container, blocks: Iterable[MemoryBlock]) -> None:
        """Earlier ordinary init containers give up what this container reuses of theirs."""
        for block in blocks:
            left = block.size
            for earlier in self.pod.containers:
                if earlier is container or earlier.kind is ContainerKind.APP:
                    break
                if earlier.kind is not ContainerKind.INIT:
                    continue
                shrunk = []
                for old in self.blocks.get(earlier.name, ()):
                    part = 0
                    if (old.zones, old.resource) == (block.zones, block.resource):
                        part = min(left, old.size)
                    left -= part
                    shrunk.append(structs.replace(old, size=old.size - part) if part else old)
                self.blocks[earlier.name] = tuple(shrunk)

    # The answer.

    def _admission(self, verdict: Verdict) -> Admission:
        holdings = {
            container.name: Holding(
                cpus=self.cpus.get(container.name, 0),
                memory=self.blocks.get(container.name, ()),
                devices=self.devices.get(container.name, {}),
            )
            for container in self.pod.containers
            if container.name in self.cpus
            or self.blocks.get(container.name)
            or container.name in self.devices
        }
        state = self.state
        return Admission(
            verdict=verdict,
            hints=self.hints,
            holdings=holdings,
            state=replace(
                state,
                shared=self.shared,
                memory=self.rows,
                admitted=state.admitted | {self.pod.uid}
                if verdict is Verdict.ADMITTED
                else state.admitted,
                holdings={**state.holdings, self.pod.uid: holdings} if holdings else state.holdings,
            ),
            exact=not self.choices.options,
            merges=tuple(self.merges),
        )

    def _refusal(self, failed: _Failed) -> Admission:
        best = self.merges[-1].best if failed.manager == "topology" else None
        answer = replace(
            self._admission(Verdict.REFUSED),
            reason=failed.stop.reason,
            message=failed.stop.message,
            failed_by=failed.manager,
            failed_container=failed.container,
            failed_hint=best,
        )
        if isinstance(failed.stop, outcome.Breaks):
            return replace(answer, state=self.state, holdings={})
        return answer
