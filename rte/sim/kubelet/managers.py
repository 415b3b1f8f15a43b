"""The resource managers of one kubelet: the placement library's rules, and what they write when.

Devices are written per container, before its CPUs; :mod:`rte.sim.kubelet.journal` has the order in
which CPUs and memory are. Nothing is written when a pod ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rte import errors, placement
from rte.model.node import Holding
from rte.placement.kubelet import memory as memory_rules
from rte.sim.kubelet import journal, views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.model.kubelet import CPUManagerState, DeviceCheckpoint, MemoryManagerState
    from rte.model.node import DevicePool, MemoryBlock, NodeState, ZoneMemory
    from rte.model.pod import Pod
    from rte.placement import Admission, Hint
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
    shared, rows = state.shared, state.memory
    holdings, pod_holdings = dict(state.holdings), dict(state.pod_holdings)

    def less(holding: Holding) -> Holding:
        return Holding(
            cpus=0 if "cpu" in managers else holding.cpus,
            memory=() if "memory" in managers else holding.memory,
            devices={} if "devices" in managers else holding.devices,
        )

    for uid in uids:
        parts = [holding for _, holding in sorted(state.holdings[uid].items())]
        whole = pod_holdings.pop(uid, _NOTHING)
        if "cpu" in managers:
            for holding in [whole] if whole.cpus else parts:
                shared |= holding.cpus
        if "memory" in managers:
            for holding in [whole] if whole.memory else parts:
                rows = memory_rules.release(rows, holding.memory) if holding.memory else rows
        holdings[uid] = {name: less(holding) for name, holding in state.holdings[uid].items()}
        if less(whole) != _NOTHING:
            pod_holdings[uid] = less(whole)
    return replace(state, shared=shared, memory=rows, holdings=holdings, pod_holdings=pod_holdings)


class KubeletManagers:
    """CPU, memory, device and topology manager with their checkpoints.

    Attributes:
        state: what they hold, with what ended pods still hold until the next admission.
    """

    def __init__(self, state: NodeState, files: StateDir | None, execute: Execute) -> None:
        self.state = state
        self._files = files
        self._execute = execute
        self._hints: dict[str, Mapping[str, Hint]] = {}
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
        self._hints = {uid: hints for uid, hints in self._hints.items() if uid in active}
        self._hints[pod.uid] = admission.hints
        self._write_allocation(before, pod, admission)
        return admission

    def restart(self, pods: Iterable[Pod], version: str) -> Mapping[str, Admission]:
        """Start again on the own files: UID -> answer for the pods that ran, in their order.

        Raises:
            errors.KubeletStartError: this kubelet does not start on these files.
        """
        result = placement.restart(replace(self.state, kubelet_version=version), pods)
        if result.start_error:
            raise errors.KubeletStartError(result.start_error)
        # What others hold stays until the next admission, as ever.
        self.state = [result.started, *(answer.state for answer in result.admissions.values())][-1]
        self._hints = {uid: answer.hints for uid, answer in result.admissions.items()}
        self._write_cpus([views.cpu_state(self.state)])
        self._write_memory([views.memory_state(self.state)])
        return result.admissions

    def refuse(self, uid: str) -> None:
        """Another admission handler refused a pod that the managers had admitted."""
        self.state = replace(self.state, admitted=self.state.admitted - {uid})

    def start(self, pod: Pod) -> None:
        """All containers were started: ordinary init containers give their memory back, and a pod
        that is served as a whole gets its devices.
        """
        before = self.state
        self.state = placement.start(before, pod, self._hints.get(pod.uid))
        held, left = (state.holdings.get(pod.uid, {}) for state in (before, self.state))
        done = [
            (pod.uid, name)
            for name, holding in sorted(held.items())
            if holding.memory and not left.get(name, _NOTHING).memory
        ]
        self._write_memory(journal.release_memory(views.memory_state(before), done))
        if any(
            holding.devices != held.get(name, _NOTHING).devices for name, holding in left.items()
        ):
            self._write_devices()

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
        pairs = [(uid, name) for uid in gone for name in sorted(before.holdings[uid])]
        if "cpu" in managers:
            self._write_cpus(journal.release_cpus(views.cpu_state(before), pairs))
        if "memory" in managers:
            self._write_memory(journal.release_memory(views.memory_state(before), pairs))

    def _write_cpus(self, states: Iterable[CPUManagerState]) -> None:
        if self._files is not None:
            for state in states:
                self._files.write_cpu_state(state)

    def _write_memory(self, states: Iterable[MemoryManagerState]) -> None:
        if self._files is not None:
            for state in states:
                self._files.write_memory_state(state)

    def _write_allocation(self, before: NodeState, pod: Pod, admission: Admission) -> None:
        if not admission.holdings:
            return
        if self._files is None:
            self._write_devices()
            return
        cpu, memory = views.cpu_state(before), views.memory_state(before)
        whole = admission.pod_holding
        if whole is not None:
            held = admission.holdings
            cpus = {name: holding.cpus for name, holding in held.items() if holding.cpus}
            blocks = {name: holding.memory for name, holding in held.items() if holding.memory}
            if whole.cpus:
                self._write_cpus(journal.take_pod_cpus(cpu, pod.uid, whole.cpus, cpus))
            if whole.memory:
                rows = admission.state.memory
                self._write_memory(
                    journal.take_pod_memory(memory, pod.uid, whole.memory, blocks, rows)
                )
            return
        zones = self._rows_by_container(pod, admission)
        for container in pod.containers:
            name, got = container.name, admission.holdings.get(container.name, _NOTHING)
            if got.devices:
                self._write_devices()
            if got.cpus:
                taken = tuple(journal.take_cpus(cpu, pod.uid, name, got.cpus))
                self._write_cpus(taken)
                cpu = taken[-1]
            if got.memory:
                given = tuple(journal.take_memory(memory, pod.uid, name, got.memory, zones[name]))
                self._write_memory(given)
                memory = given[-1]

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
