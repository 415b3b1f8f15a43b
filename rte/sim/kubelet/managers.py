"""The resource managers of one kubelet: the placement library's rules, and what they write when.

Order of writes (v1.35): a CPU allocation writes ``defaultCpuSet`` first and the entry after, a
release the reverse; a memory allocation the machine state first, a release the entry first. Devices
are written per container, before its CPUs. Nothing is written when a pod ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rte import placement
from rte.model.kubelet import CPUManagerState, MemoryManagerState
from rte.model.node import Holding
from rte.placement.kubelet import memory as memory_rules
from rte.sim.kubelet import views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.model.kubelet import DeviceCheckpoint
    from rte.model.node import DevicePool, MemoryBlock, NodeState, ZoneMemory
    from rte.model.pod import Pod
    from rte.placement import Admission
    from rte.sim.kubelet.files import StateDir

_NOTHING = Holding()

#: One admission by one kubelet, such as :func:`placement.execute`.
Execute: TypeAlias = "Callable[[NodeState, Pod], Admission]"


#: In the order in which they are asked.
_MANAGERS = ("devices", "cpu", "memory")


def _asked(state: NodeState, pod: Pod, admission: Admission) -> tuple[str, ...]:
    """The managers that an admission came to; each drops what is stale when it is asked first.

    For hints all of them are asked before anything is allocated. Under policy none there are no
    hints, and an allocation that fails for the first container leaves out those that come after.
    """
    first = pod.containers[0].name
    if state.config.topology_policy != "none" or admission.failed_container != first:
        return _MANAGERS
    return _MANAGERS[: _MANAGERS.index(admission.failed_by) + 1]


def _without(state: NodeState, uids: Iterable[str], managers: tuple[str, ...]) -> NodeState:
    """A state whose managers, only some of them, have dropped pods."""
    shared, rows, holdings = state.shared, state.memory, dict(state.holdings)
    for uid in uids:
        left = {}
        for name, holding in sorted(state.holdings[uid].items()):
            if "cpu" in managers:
                shared |= holding.cpus
            if "memory" in managers and holding.memory:
                rows = memory_rules.release(rows, holding.memory)
            left[name] = Holding(
                cpus=0 if "cpu" in managers else holding.cpus,
                memory=() if "memory" in managers else holding.memory,
                devices={} if "devices" in managers else holding.devices,
            )
        holdings[uid] = left
    return replace(state, shared=shared, memory=rows, holdings=holdings)


class Managers:
    """CPU, memory, device and topology manager with their checkpoints.

    Attributes:
        state: what they hold, with what ended pods still hold until the next admission.
    """

    def __init__(self, state: NodeState, files: StateDir | None, execute: Execute) -> None:
        self.state = state
        self._files = files
        self._execute = execute
        self._checkpoint: DeviceCheckpoint = views.device_checkpoint(state)
        if files is not None:
            files.write_cpu_state(views.cpu_state(state))
            files.write_memory_state(views.memory_state(state))
            if state.devices:
                files.write_device_checkpoint(self._checkpoint)

    def admit(self, pod: Pod, active: frozenset[str]) -> Admission:
        """Drop what is stale, then answer; a refused pod's residues stay until the next time."""
        admission = self._execute(placement.settle(self.state, active), pod)
        asked = _asked(self.state, pod, admission)
        self._release(active, asked)
        before = self.state
        if asked == _MANAGERS:
            self.state = admission.state
        elif admission.holdings:
            holdings = {**before.holdings, pod.uid: admission.holdings}
            self.state = replace(before, holdings=holdings)
        self._write_allocation(before, pod, admission)
        return admission

    def refuse(self, uid: str) -> None:
        """Another admission handler refused a pod that the managers had admitted."""
        self.state = replace(self.state, admitted=self.state.admitted - {uid})

    def start(self, pod: Pod) -> None:
        """All containers were started: ordinary init containers give their memory back."""
        before = self.state
        self.state = placement.start(before, pod)
        for container in pod.containers:
            held = before.holdings.get(pod.uid, {}).get(container.name, _NOTHING).memory
            left = self.state.holdings.get(pod.uid, {}).get(container.name, _NOTHING).memory
            if held and not left:
                self._write_memory_release(before, {(pod.uid, container.name)})

    def reconcile(self, active: frozenset[str]) -> None:
        """The CPU manager's periodic clean-up; memory and devices wait for the next admission."""
        self._release(active, ("cpu",))

    def set_devices(self, pools: Mapping[str, DevicePool]) -> None:
        """Device plugins registered, or devices changed their health."""
        self.state = replace(self.state, devices=dict(pools))
        self._write_devices()

    def _release(self, active: frozenset[str], managers: tuple[str, ...]) -> None:
        """Some of the managers drop what pods hold that are no longer active."""
        before = self.state
        gone = [uid for uid in sorted(before.holdings) if uid not in active]
        if managers == _MANAGERS:
            self.state = placement.settle(before, active)
        elif gone:
            self.state = _without(before, gone, managers)
        pairs = {(uid, name) for uid in gone for name in before.holdings[uid]}
        if "cpu" in managers:
            self._write_cpu_release(before, pairs)
        if "memory" in managers:
            self._write_memory_release(before, pairs)

    def _write_cpu_release(self, before: NodeState, gone: set[tuple[str, str]]) -> None:
        if self._files is None or before.config.cpu_policy != "static":
            return
        image = views.cpu_state(before)
        entries = {uid: dict(held) for uid, held in image.entries.items()}
        default = image.default
        for uid, name in sorted(gone):
            cpus = entries.get(uid, {}).pop(name, None)
            if cpus is None:
                continue
            if not entries[uid]:
                del entries[uid]
            self._files.write_cpu_state(CPUManagerState(image.policy, default, entries))
            default |= cpus
            self._files.write_cpu_state(CPUManagerState(image.policy, default, entries))

    def _write_memory_release(self, before: NodeState, gone: set[tuple[str, str]]) -> None:
        if self._files is None or before.config.memory_policy != "Static":
            return
        image = views.memory_state(before)
        entries = {uid: dict(held) for uid, held in image.entries.items()}
        rows = image.zones
        for uid, name in sorted(gone):
            blocks = entries.get(uid, {}).pop(name, None)
            if blocks is None:
                continue
            if not entries[uid]:
                del entries[uid]
            self._files.write_memory_state(MemoryManagerState(image.policy, rows, entries))
            rows = memory_rules.release(rows, blocks)
            self._files.write_memory_state(MemoryManagerState(image.policy, rows, entries))

    def _write_allocation(self, before: NodeState, pod: Pod, admission: Admission) -> None:
        if self._files is None or not admission.holdings:
            return
        cpu, memory = views.cpu_state(before), views.memory_state(before)
        cpu_entries = {uid: dict(held) for uid, held in cpu.entries.items()}
        memory_entries = {uid: dict(held) for uid, held in memory.entries.items()}
        default = cpu.default
        rows = self._rows_by_container(pod, admission)
        for container in pod.containers:
            held = admission.holdings.get(container.name)
            if held is None:
                continue
            if held.devices:
                self._write_devices()
            if held.cpus:
                default &= ~held.cpus
                self._files.write_cpu_state(CPUManagerState(cpu.policy, default, cpu_entries))
                cpu_entries.setdefault(pod.uid, {})[container.name] = held.cpus
                self._files.write_cpu_state(CPUManagerState(cpu.policy, default, cpu_entries))
            if held.memory:
                zones = rows[container.name]
                self._files.write_memory_state(
                    MemoryManagerState(memory.policy, zones, memory_entries)
                )
                memory_entries.setdefault(pod.uid, {})[container.name] = held.memory
                self._files.write_memory_state(
                    MemoryManagerState(memory.policy, zones, memory_entries)
                )

    @staticmethod
    def _rows_by_container(pod: Pod, admission: Admission) -> dict[str, Mapping[int, ZoneMemory]]:
        """The memory rows after each container: the last ones less what later containers got.

        Where containers reuse memory of init containers the intermediate amounts are approximate;
        the last ones are exact.
        """
        rows: Mapping[int, ZoneMemory] = admission.state.memory
        out: dict[str, Mapping[int, ZoneMemory]] = {}
        for container in reversed(pod.containers):
            out[container.name] = rows
            blocks: tuple[MemoryBlock, ...] = admission.holdings.get(
                container.name, _NOTHING
            ).memory
            if blocks:
                rows = memory_rules.release(rows, blocks)
        return out

    def _write_devices(self) -> None:
        self._checkpoint = views.device_checkpoint(self.state)
        if self._files is not None:
            self._files.write_device_checkpoint(self._checkpoint)

    @property
    def checkpoint(self) -> DeviceCheckpoint:
        """The device manager's checkpoint as last written."""
        return self._checkpoint
