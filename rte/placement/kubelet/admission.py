"""The life of pods on a node as its kubelet's resource managers see it.

One admission is in ``managers``. A pod's overhead and the node's totals are no matter of the
managers: the kubelet checks totals afterwards, against a pod that may already hold something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from rte.model.node import Holding, NodeState
from rte.model.pod import MOST_CONTAINERS, ContainerKind
from rte.placement.kubelet import demand, devices, memory, outcome
from rte.placement.kubelet.managers import AdmissionManagers
from rte.placement.kubelet.outcome import Admission, Start, Verdict
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from rte.model.pod import Pod
    from rte.placement.kubelet.outcome import Hint

#: Executions that are tried to find out whether a random pick of devices matters.
MAX_EXECUTIONS = 64
_NOTHING = Holding()


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
            return uncertain(
                state,
                outcome.DEVICE_CHOICE,
                "the answer depends on which devices the kubelet picks at random",
            )
    return first


def shape_key(pod: Pod) -> Hashable:
    """What the kubelet's answer depends on: all of a pod but its identity."""
    return (
        pod.qos,
        tuple(
            (
                container.name,
                container.kind,
                _items(container.requests),
                _items(container.limits),
            )
            for container in pod.containers
        ),
        None if pod.pod_requests is None else _items(pod.pod_requests),
        None if pod.pod_limits is None else _items(pod.pod_limits),
    )


def _items(amounts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(amounts.items())


def execute(state: NodeState, pod: Pod) -> Admission:
    """What one kubelet answers: the one that picks devices in ascending order (for simulation)."""
    return _run(state, pod, ())[0]


def possible_states(state: NodeState, pod: Pod) -> tuple[NodeState, ...] | None:
    """Every state that admitting the pod may leave behind, counting devices of one zone set as
    equal; None when they are too many, when the pod is not surely admitted, or when it takes its
    devices only at its start.

    Raises:
        Unpredictable: of this kubelet no rules are known.
    """
    if takes_devices_at_start(state, pod):
        return None
    states: list[NodeState] = []
    for tried, (admission, _) in enumerate(_executions(state, pod), start=1):
        if not admission.admitted or tried > MAX_EXECUTIONS:
            return None
        states.append(admission.state)
    return tuple(states)


def start(state: NodeState, pod: Pod, hints: Mapping[str, Hint] | None = None) -> NodeState:
    """The node when all containers of the pod were started; see :func:`start_containers`."""
    return start_containers(state, pod, hints).state


def start_containers(state: NodeState, pod: Pod, hints: Mapping[str, Hint] | None = None) -> Start:
    """What becomes of an admitted pod's containers when they start, one after the other.

    The memory of ordinary init containers is free again (of a pod that holds its memory as a whole
    they only lose their part); their CPUs and devices stay until the pod goes. A pod whose
    admission took no devices takes them now, along the ``hints`` of its admission, which the
    kubelet remembers (without: any that are free), and that can fail.
    """
    state = _without_init_memory(state, pod)
    if pod.uid not in state.admitted or not _lacks_devices(state, pod):
        return Start(state=state)
    rules = rules_of(state.config, state.kubelet_version)
    return AdmissionManagers(state, pod, rules, devices.Choices()).start(hints or {})


def takes_devices_at_start(state: NodeState, pod: Pod) -> bool:
    """Whether the kubelet gives the pod its devices only when its containers start.

    Raises:
        outcome.Unpredictable: no rules for this kubelet.
    """
    rules = rules_of(state.config, state.kubelet_version)
    return demand.is_one_piece(pod, rules) and any(
        demand.devices_requested(container, state.devices) for container in pod.containers
    )


def _without_init_memory(state: NodeState, pod: Pod) -> NodeState:
    held = state.holdings.get(pod.uid, {})
    left = dict(held)
    rows = state.memory
    for container in pod.containers:
        holding = held.get(container.name)
        if holding is None or container.kind is not ContainerKind.INIT:
            continue
        if holding.memory and not _whole(state, pod.uid).memory:
            rows = memory.release(rows, holding.memory)
        left[container.name] = structs.replace(holding, memory=())
        if left[container.name] == _NOTHING:
            del left[container.name]
    if left == held:
        return state
    return replace(state, memory=rows, holdings={**state.holdings, pod.uid: left})


def _lacks_devices(state: NodeState, pod: Pod) -> bool:
    held = state.holdings.get(pod.uid, {})
    return any(
        amount and name not in held.get(container.name, _NOTHING).devices
        for container in pod.containers
        for name, amount in demand.devices_requested(container, state.devices).items()
    )


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
    kept = dict(state.pod_holdings)
    for uid in gone:
        held = [holding for _, holding in sorted(state.holdings.get(uid, {}).items())]
        whole = _whole(state, uid)
        # What a pod holds as a whole comes free with its last container's part; where the kubelet
        # gave no parts, it never does.
        released = [whole] if whole.cpus and any(holding.cpus for holding in held) else held
        for holding in released:
            shared |= holding.cpus
        released = [whole] if whole.memory and any(holding.memory for holding in held) else held
        for holding in released:
            if holding.memory:
                rows = memory.release(rows, holding.memory)
        if held:
            kept.pop(uid, None)
    return replace(
        state,
        shared=shared,
        memory=rows,
        holdings={uid: held for uid, held in state.holdings.items() if uid not in gone},
        pod_holdings=kept,
        admitted=state.admitted.difference(gone),
    )


def _whole(state: NodeState, uid: str) -> Holding:
    return state.pod_holdings.get(uid, _NOTHING)


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
        names = demand.devices_requested(container, state.devices).keys()
        if seen & names:
            return True
        seen |= names
    return False


def uncertain(state: NodeState, reason: str, message: str) -> Admission:
    """The answer "nobody knows"; the node stays as it is."""
    return Admission(verdict=Verdict.UNCERTAIN, reason=reason, message=message, state=state)


def _run(state: NodeState, pod: Pod, script: tuple[int, ...]) -> tuple[Admission, devices.Choices]:
    choices = devices.Choices(script)
    try:
        rules = rules_of(state.config, state.kubelet_version)
        _check_pod(state, pod)
        return AdmissionManagers(state, pod, rules, choices).admit(), choices
    except outcome.Unpredictable as unknown:
        return uncertain(state, unknown.reason, unknown.message), choices


def _check_pod(state: NodeState, pod: Pod) -> None:
    if len(pod.containers) > MOST_CONTAINERS:
        raise outcome.Unpredictable(
            outcome.TOO_MANY_CONTAINERS, f"the pod has more than {MOST_CONTAINERS} containers"
        )
    if pod.uid in state.holdings or pod.uid in state.admitted:
        raise outcome.Unpredictable(
            outcome.ALREADY_KNOWN, "the kubelet already knows this pod (remove it first)"
        )
