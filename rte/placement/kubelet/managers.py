"""The managers of one kubelet during the admission of one pod.

Sources: pkg/kubelet/cm/topologymanager (scope_*.go), and the ``manager`` types of the CPU, memory
and device manager. What a pod holds already, which happens after a restart of the kubelet, is
offered again as a hint and kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from rte.model.node import Holding
from rte.model.pod import ContainerKind
from rte.placement.kubelet import demand, devices, memory, merge, outcome, podlevel
from rte.placement.kubelet.cpu import pickers, static
from rte.placement.kubelet.outcome import Admission, Merge, Start, Verdict
from rte.placement.kubelet.rules import CPUOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet, Mask, ZoneSet
    from rte.model.node import MemoryBlock, NodeState, ZoneMemory
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.outcome import Hint, ProviderHints
    from rte.placement.kubelet.rules import KubeletRules

    Providers = tuple[ProviderHints, ProviderHints, ProviderHints]

WHOLE_POD = "*"
_TOPOLOGY_TEXT = "Resources cannot be allocated with Topology locality"
_POD_LEVEL_TEXT = "Pod Scope pod with pod-level resources failed admission "


class _Failed(Exception):  # noqa: N818 - carries who stopped the admission, and where
    def __init__(self, manager: str, container: str, stop: outcome.Stop) -> None:
        self.manager = manager
        self.container = container
        self.stop = stop
        super().__init__(stop.message)


class AdmissionManagers:
    """One admission: what is left, and what the containers have got so far."""

    def __init__(
        self, state: NodeState, pod: Pod, rules: KubeletRules, choices: devices.Choices
    ) -> None:
        self.state = state
        self.pod = pod
        self.rules = rules
        self.choices = choices
        self.layout = pickers.layout_of(state.topology)
        # No pod asks for CPUs of its own under policy none, whose options these are not.
        self.cpu_options = rules.cpu or CPUOptions()
        self.memory_served = rules.memory and demand.is_served(pod, rules)
        self.wanted_cpus, self.wanted_memory = demand.by_container(pod, rules)
        self.one_piece = demand.is_one_piece(pod, rules)
        self.shared: CPUSet = state.shared
        self.rows: Mapping[int, ZoneMemory] = state.memory
        self.reusable_cpus: CPUSet = 0
        self.reusable_memory: dict[tuple[ZoneSet, str], int] = {}
        self.reusable_devices: dict[str, Mask] = {}
        self.devices_in_use: dict[str, Mask] = {}
        held = state.holdings.get(pod.uid, {})
        self.cpus = {name: holding.cpus for name, holding in held.items() if holding.cpus}
        self.blocks = {name: holding.memory for name, holding in held.items() if holding.memory}
        if held and self.memory_served and not rules.memoryless_skipped:
            # A container that asks for no memory has been allocated none, which counts.
            self.blocks |= {
                container.name: ()
                for container in pod.containers
                if container.name in held
                and container.name not in self.blocks
                and not self.wanted_memory[container.name]
            }
        self.devices = {
            name: dict(holding.devices) for name, holding in held.items() if holding.devices
        }
        self.whole = state.pod_holdings.get(pod.uid)
        self.hints: dict[str, Hint] = {}
        self.merges: list[Merge] = []

    # The topology manager's scopes.

    def admit(self) -> Admission:
        """The kubelet's answer."""
        try:
            if self.rules.policy == merge.NONE:
                for container in self.pod.containers:
                    self._allocate(container, (None, False))
            elif self.rules.pod_scope:
                hint = self._merge(WHOLE_POD, self._pod_hints)
                if self.one_piece:
                    self.hints = dict.fromkeys((each.name for each in self.pod.containers), hint)
                    self._allocate_pod(hint)
                    return self._admission(Verdict.ADMITTED)
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

    def start(self, hints: Mapping[str, Hint]) -> Start:
        """Devices for containers that lack them, one after the other
        (GetDeviceRunContainerOptions).
        """
        given: dict[str, Mapping[str, Mask]] = {}
        failed: dict[str, str] = {}
        for container in self.pod.containers:
            before = dict(self.devices.get(container.name, {}))
            wanted = demand.devices_requested(container, self.state.devices)
            if all(name in before for name, amount in wanted.items() if amount):
                continue
            try:
                self._allocate_devices(container, hints.get(container.name, (None, False)))
            except outcome.AllocationRefused as stop:
                failed[container.name] = stop.cause
            after = self.devices.get(container.name, {})
            if after != before:
                given[container.name] = {
                    name: mask for name, mask in after.items() if name not in before
                }
        state = self._admission(Verdict.ADMITTED).state
        return Start(state=state, devices=given, failed=failed)

    def _merge(self, name: str, ask: Callable[[], Providers]) -> Hint:
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
            refusal = outcome.AllocationRefused(
                outcome.TOPOLOGY_AFFINITY_ERROR, self._why_not_aligned()
            )
            raise _Failed("topology", name, refusal)
        return best

    def _why_not_aligned(self) -> str:
        if not demand.is_pod_level(self.pod, self.rules):
            return _TOPOLOGY_TEXT
        if self.rules.pod_scope:
            return _POD_LEVEL_TEXT + "under pod-scope topology manager"
        return _POD_LEVEL_TEXT + "with a container-level topology manager"

    def _container_hints(self, container: Container) -> Providers:
        return (
            self._device_hints(container),
            self._cpu_hints(container),
            self._memory_hints(container),
        )

    def _pod_hints(self) -> Providers:
        return self._pod_device_hints(), self._pod_cpu_hints(), self._pod_memory_hints()

    # Hints of the device manager.

    def _device_hints(self, container: Container) -> ProviderHints:
        own = self.devices.get(container.name, {})
        return {
            name: self._hints_for_devices(
                name, amount, own.get(name, 0), self.reusable_devices.get(name, 0)
            )
            for name, amount in demand.devices_requested(container, self.state.devices).items()
        }

    def _pod_device_hints(self) -> ProviderHints:
        own: dict[str, Mask] = {}
        for held in self.devices.values():
            for name, mask in held.items():
                own[name] = own.get(name, 0) | mask
        return {
            name: self._hints_for_devices(name, amount, own.get(name, 0), 0)
            for name, amount in demand.pod_devices_requested(self.pod, self.state.devices).items()
        }

    def _hints_for_devices(
        self, name: str, amount: int, own: Mask, reusable: Mask
    ) -> Sequence[Hint] | None:
        pool = self.state.devices[name]
        available = pool.healthy & ~self._in_use(name)
        if own and devices.has_zones(pool):
            if own.bit_count() != amount:
                return []
            available, reusable = own, 0
        return devices.hints(
            pool,
            tuple(zone.id for zone in self.state.topology.zones),
            available,
            reusable,
            amount,
            device_zones_only=self.rules.device_zones_only,
        )

    def _in_use(self, resource: str) -> Mask:
        if resource not in self.devices_in_use:
            self.devices_in_use[resource] = devices.held(self.state, resource)
        return self.devices_in_use[resource]

    # Hints of the CPU manager.

    def _cpu_hints(self, container: Container) -> ProviderHints:
        count = self.wanted_cpus[container.name]
        if not count:
            return None
        held = self.cpus.get(container.name)
        if held is not None and held.bit_count() != count:
            return {"cpu": []}
        return self._hints_for_cpus(
            held or self._assignable(), 0 if held else self.reusable_cpus, count
        )

    def _pod_cpu_hints(self) -> ProviderHints:
        count = demand.cpus_of_pod(self.pod, self.rules)
        if not count:
            return None
        parts = self._cpu_parts()
        if self.one_piece:
            try:
                podlevel.check_shared_cpus(count, parts)
            except outcome.AllocationRefused:
                return {"cpu": []}
        restored = self._restored_cpus(count)
        if restored:
            return self._hints_for_cpus(restored, 0, count)
        held = 0
        for container, amount in parts:
            own = self.cpus.get(container.name, 0)
            if own and own.bit_count() != amount:
                return {"cpu": []}
            held |= own
        if held.bit_count() == count:
            return self._hints_for_cpus(held, 0, count)
        return self._hints_for_cpus(self._assignable(), held, count)

    def _restored_cpus(self, count: int) -> CPUSet:
        """What the pod holds as a whole since before a restart, where the kubelet minds."""
        held = self.whole.cpus if self.whole is not None and self.rules.pod_cpus_restored else 0
        return held if held.bit_count() == count else 0

    def _hints_for_cpus(self, available: CPUSet, reusable: CPUSet, count: int) -> ProviderHints:
        offered = static.hints(self.layout, self.cpu_options, available, reusable, count)
        return {"cpu": offered}

    def _cpu_parts(self) -> list[tuple[Container, int]]:
        return [(each, self.wanted_cpus[each.name]) for each in self.pod.containers]

    def _assignable(self) -> CPUSet:
        return self.shared & ~self.state.reserved

    # Hints of the memory manager.

    def _memory_hints(self, container: Container) -> ProviderHints:
        wanted = self.wanted_memory[container.name]
        if container.name in self.blocks:
            return memory.held_hints(self.blocks[container.name], wanted)
        return self._hints_for_memory(wanted)

    def _pod_memory_hints(self) -> ProviderHints:
        wanted = demand.memory_of_pod(self.pod, self.rules)
        if self.one_piece:
            try:
                podlevel.check_shared_memory(wanted, self._memory_parts())
            except outcome.AllocationRefused:
                return dict.fromkeys(wanted, ())
        for container in self.pod.containers:
            if container.name in self.blocks:
                return memory.held_hints(self.blocks[container.name], wanted)
        return self._hints_for_memory(wanted)

    def _hints_for_memory(self, wanted: Mapping[str, int]) -> ProviderHints:
        if not wanted:
            return None
        offered = memory.hints(self.rows, wanted, self.reusable_memory)
        # No combination at all: no opinion, not "impossible"; the allocation fails later.
        return dict.fromkeys(wanted, offered) if offered else {}

    def _memory_parts(self) -> list[tuple[Container, dict[str, int]]]:
        return [(each, self.wanted_memory[each.name]) for each in self.pod.containers]

    # Allocation: devices, CPUs, memory.

    def _allocate(self, container: Container, hint: Hint) -> None:
        for manager, allocate in (
            ("devices", self._allocate_devices),
            ("cpu", self._allocate_cpus),
            ("memory", self._allocate_memory),
        ):
            try:
                allocate(container, hint)
            except (outcome.AllocationRefused, outcome.Breaks) as stop:
                raise _Failed(manager, container.name, stop) from stop

    def _allocate_pod(self, hint: Hint) -> None:
        """No devices: the device manager hands them out when the containers start."""
        for manager, allocate in (
            ("cpu", self._allocate_pod_cpus),
            ("memory", self._allocate_pod_memory),
        ):
            try:
                allocate(hint)
            except (outcome.AllocationRefused, outcome.Breaks) as stop:
                raise _Failed(manager, WHOLE_POD, stop) from stop

    def _allocate_devices(self, container: Container, hint: Hint) -> None:
        for name, amount in demand.devices_requested(container, self.state.devices).items():
            reusable = self.reusable_devices.get(name, 0)
            taken = self.devices.get(container.name, {}).get(name, 0)
            if not taken:
                taken = self._take_devices(name, amount, reusable, hint)
            if taken:
                self.devices.setdefault(container.name, {})[name] = taken
            if container.kind is ContainerKind.INIT:
                self.reusable_devices[name] = reusable | taken
            else:
                self.reusable_devices[name] = reusable & ~taken

    def _take_devices(self, name: str, amount: int, reusable: Mask, hint: Hint) -> Mask:
        pool = self.state.devices[name]
        affinity = hint[0] if devices.has_zones(pool) else None
        taken = devices.allocate(
            name, pool, self._in_use(name), reusable, amount, affinity, self.choices
        )
        self.devices_in_use[name] |= taken
        return taken

    def _allocate_cpus(self, container: Container, hint: Hint) -> None:
        count = self.wanted_cpus[container.name]
        if not count:
            return
        taken = self.cpus.get(container.name)
        if taken is None or not self.cpu_options.keeps_held_cores:
            self._check_full_cores(count)
        if taken is None:
            allocatable = self._assignable() | self.reusable_cpus
            taken = static.allocate(self.layout, self.cpu_options, allocatable, count, hint[0])
            self.cpus[container.name] = taken
            self.shared &= ~taken
        if container.kind is ContainerKind.INIT:
            self.reusable_cpus |= taken
        else:
            self.reusable_cpus &= ~taken

    def _check_full_cores(self, count: int) -> None:
        if self.cpu_options.full_pcpus_only:
            static.check_full_cores(self.layout, self.shared, self.state.reserved, count)

    def _allocate_pod_cpus(self, hint: Hint) -> None:
        """CPUs for the pod; before 1.38 once more, whatever its containers hold already."""
        count = demand.cpus_of_pod(self.pod, self.rules)
        if not count:
            return
        parts = self._cpu_parts()
        restored = self._restored_cpus(count)
        if restored:
            split = podlevel.split_cpus(self.layout, self.cpu_options, restored, parts)
            self.cpus = {**split, **self.cpus}
            return
        podlevel.check_shared_cpus(count, parts)
        self._check_full_cores(count)
        taken = static.allocate(self.layout, self.cpu_options, self._assignable(), count, hint[0])
        self.shared &= ~taken
        self.whole = structs.replace(self.whole or Holding(), cpus=taken)
        self.cpus = podlevel.split_cpus(self.layout, self.cpu_options, taken, parts)

    def _allocate_memory(self, container: Container, hint: Hint) -> None:
        if not self.memory_served:
            return
        wanted = self.wanted_memory[container.name]
        if not wanted and self.rules.memoryless_skipped:
            return
        held = self.blocks.get(container.name)
        if held is not None:
            self._reuse_memory(container, held)
            return
        self.rows, blocks = memory.allocate(self.rows, wanted, self.reusable_memory, hint)
        self.blocks[container.name] = blocks
        self._reuse_memory(container, blocks)
        self._shrink_init_blocks(container, blocks)

    def _reuse_memory(self, container: Container, blocks: Iterable[MemoryBlock]) -> None:
        for block in blocks:
            key = (block.zones, block.resource)
            reusable = self.reusable_memory.get(key, 0)
            if container.kind is ContainerKind.INIT:
                self.reusable_memory[key] = max(reusable, block.size)
            elif reusable:
                self.reusable_memory[key] = max(0, reusable - block.size)

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

    def _allocate_pod_memory(self, hint: Hint) -> None:
        if not self.memory_served:
            return
        wanted = demand.memory_of_pod(self.pod, self.rules)
        parts = self._memory_parts()
        podlevel.check_shared_memory(wanted, parts)
        self.rows, blocks = memory.allocate(self.rows, wanted, {}, hint)
        self.whole = structs.replace(self.whole or Holding(), memory=blocks)
        zones = blocks[0].zones if blocks else 0
        self.blocks = podlevel.split_memory(zones, wanted, parts)

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
            or container.name in self.blocks
            or container.name in self.devices
        }
        state, uid = self.state, self.pod.uid
        return Admission(
            verdict=verdict,
            hints=self.hints,
            holdings=holdings,
            pod_holding=self.whole,
            state=replace(
                state,
                shared=self.shared,
                memory=self.rows,
                admitted=state.admitted | {uid} if verdict is Verdict.ADMITTED else state.admitted,
                holdings={**state.holdings, uid: holdings} if holdings else state.holdings,
                pod_holdings={**state.pod_holdings, uid: self.whole}
                if self.whole is not None
                else state.pod_holdings,
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
            return replace(answer, state=self.state, holdings={}, pod_holding=None)
        return answer
