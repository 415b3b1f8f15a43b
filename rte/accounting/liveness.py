"""Is a pod of this node active, admitted, or is that unsure? One answer from all sources (pure).

* The API tells who is active, by a watch: :class:`PodTable`. It shows a pod terminal or gone only
  after the kubelet has let go of it. A mirror pod stands for a static one, and may go without it.
* The kubelet's files tell who holds something and who was admitted, if this kubelet writes them:
  :func:`of_running_kubelet`. They lag behind on endings.
* Podresources decides where the API is silent, and where it is not asked: :func:`active_uids`.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rte.accounting.koordlet import koordlet_pod
from rte.k8s import wire
from rte.model.kubelet import NodePod
from rte.placement.kubelet import outcome, releases
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rte.accounting.holdings import Listing, Name
    from rte.model.kubelet import CPUManagerState, KubeletView, MemoryManagerState, StateFiles
    from rte.model.node import KubeletConfig
    from rte.reader.json import JsonObject

    Guard = Callable[[str], AbstractContextManager[object]]

_State = TypeVar("_State", "CPUManagerState", "MemoryManagerState")

#: Kubelets from this minor version on read the content of ``data``, older ones what is beside it.
EMBEDDED_MINOR = 37

#: From this minor version on kubelets keep ``allocated_pods_state``, while this gate is on.
_ALLOCATED_MINOR = 33
_ALLOCATED_GATE = "InPlacePodVerticalScaling"

#: A mirror pod stands for a static one; deleting it by hand does not end the static pod.
_MIRROR = "kubernetes.io/config.mirror"

_TERMINAL = ("Succeeded", "Failed")


class PodTable:
    """What a watch of this node's pods has told so far.

    A pod that the API deleted stays as a terminal one until the kubelet's files forget it
    (:meth:`retain`): the kubelet writes nothing when a pod ends. A UID that the files know and the
    API does not is too new at first; after ``grace_s`` it is doubtful: long gone, or a static pod
    whose mirror is missing. Podresources can tell; who is gone is then :meth:`bury`-ed.
    What the first files have (:meth:`expect`) is doubtful if the first list lacks it: pods that
    went before we came stay in the kubelet's files until its next admission.

    Attributes:
        listed: the API has told of all pods of the node.
    """

    def __init__(self, *, grace_s: float = 2.0) -> None:
        self._before: frozenset[str] = frozenset()
        self._grace_s = grace_s
        self._pods: dict[str, NodePod] = {}
        self._ended: dict[str, NodePod] = {}
        self._unknown: dict[str, float] = {}
        self.listed = False

    def expect(self, uids: frozenset[str]) -> None:
        """The first list is to show these, or was."""
        self._before = uids
        if self.listed:
            self._doubt_lacking()

    def replace(self, items: Iterable[JsonObject], guard: Guard = nullcontext) -> None:
        """Take a whole list; what it lacks has ended.

        ``guard``: for the item of a UID; of one that raises what was last known stands.
        """
        before = self._pods
        self._pods = {}
        listed = set()
        for item in items:
            listed.add(uid := uid_of(item))
            with guard(uid):
                self.update(item)
        for uid in listed & (before.keys() - self._pods.keys()):
            self._pods[uid] = before[uid]
        for uid, pod in before.items():
            if uid not in self._pods:
                self._gone(pod)
        self._doubt_lacking()
        self.listed = True

    def _doubt_lacking(self) -> None:
        self._unknown |= dict.fromkeys(self._before - self._pods.keys(), -math.inf)
        self._before = frozenset()

    def update(self, obj: JsonObject) -> bool:
        """Take one pod; True when that changes anything here."""
        pod = node_pod(obj)
        self._unknown.pop(pod.uid, None)
        ended = self._ended.pop(pod.uid, None)
        if self._pods.get(pod.uid) == pod and ended is None:
            return False
        self._pods[pod.uid] = pod
        return True

    def remove(self, obj: JsonObject) -> bool:
        """The API deleted a pod; True when that changes anything here."""
        known = self._pods.pop(node_pod(obj).uid, None)
        if known is not None:
            self._gone(known)
        return known is not None

    def retain(self, uids: frozenset[str], now: float) -> float | None:
        """Forget ended pods that ``uids``, those in the kubelet's files, no longer have.

        Returns:
            Seconds until a UID unknown to the API becomes doubtful; None when there is none such.
        """
        self._ended = {uid: pod for uid, pod in self._ended.items() if uid in uids}
        unknown = uids - self._pods.keys() - self._ended.keys()
        self._unknown = {uid: self._unknown.get(uid, now) for uid in unknown}
        waits = [since + self._grace_s - now for since in self._unknown.values()]
        return min((wait for wait in waits if wait > 0), default=None) if self.listed else None

    def doubtful(self, now: float) -> frozenset[str]:
        """UIDs that the API has not shown for long; none while others are too new to tell."""
        if not self.listed or any(now - since < self._grace_s for since in self._unknown.values()):
            return frozenset()
        return frozenset(self._unknown)

    @property
    def unseen(self) -> frozenset[str]:
        """UIDs that the API has not shown, and that its first list did not lack either."""
        return frozenset(uid for uid, since in self._unknown.items() if since > -math.inf)

    def bury(self, uids: frozenset[str]) -> None:
        """These are gone."""
        for uid in uids:
            self._unknown.pop(uid, None)
            self._ended[uid] = NodePod(uid=uid, namespace="", name="", terminal=True)

    def pods(self) -> tuple[NodePod, ...]:
        """All pods, the ended ones among them as terminal, in order of UID."""
        return tuple(pod for _, pod in sorted({**self._pods, **self._ended}.items()))

    def _gone(self, pod: NodePod) -> None:
        """The API has it no longer; of a static pod that says nothing, podresources will tell."""
        if not pod.is_mirror:
            self._ended[pod.uid] = NodePod(
                uid=pod.uid, namespace=pod.namespace, name=pod.name, terminal=True
            )


def uid_of(obj: object) -> str:
    """The UID of a Pod object as the kubelet knows it; empty where it has none."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations") or {}, dict):
        return ""
    uid: object = wire.kubelet_uid(metadata)
    return uid if isinstance(uid, str) else ""


def node_pod(obj: JsonObject) -> NodePod:
    """The few facts of a Pod object that matter here."""
    metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
    terminal = status.get("phase") in _TERMINAL
    return NodePod(
        uid=wire.kubelet_uid(metadata),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        terminal=terminal,
        admitted=bool(status.get("startTime")) and not terminal,
        is_mirror=_MIRROR in (metadata.get("annotations") or {}),
        koordlet=koordlet_pod(metadata),
    )


def keeps_allocated(version: str, gates: Mapping[str, bool]) -> bool:
    """Whether such a kubelet writes ``allocated_pods_state``; else what lies there is left over.

    Source: newStateImpl in pkg/kubelet/allocation/allocation_manager.go (KEP-1287). One of unknown
    release is taken to have written what is there.
    """
    release = releases.parse(version)
    if release is None:
        return True
    return release.minor >= _ALLOCATED_MINOR and gates.get(_ALLOCATED_GATE, True)


def of_running_kubelet(view: KubeletView, config: KubeletConfig) -> tuple[KubeletView, bool]:
    """The view with what the running kubelet has written or loaded itself, and whether it serves
    pods as a whole.

    A kubelet that was downgraded in place, or had its gate PodLevelResourceManagers switched off,
    finds pod entries that it does not read, until it writes the files anew (restoreState in both
    managers' state packages). One of unknown release or configuration wrote what is there.
    """
    if view.config is not None and not keeps_allocated(view.version, config.feature_gates):
        view = replace(view, allocated=None)
    has_pods = any(state is not None and state.pod_entries for state in (view.cpu, view.memory))
    try:
        serves_pods = (
            has_pods if view.config is None else rules_of(config, view.version).pod_level_managers
        )
    except outcome.Unpredictable:
        serves_pods = has_pods
    if not has_pods:
        return view, serves_pods
    release = releases.parse(view.version)
    older = release is not None and release.minor < EMBEDDED_MINOR

    def loaded(state: _State | None) -> _State | None:
        if state is None or (serves_pods and not (state.embedded and older)):
            return state
        return replace(state, pod_entries={})

    return replace(view, cpu=loaded(view.cpu), memory=loaded(view.memory)), serves_pods


def holders(files: StateFiles | None) -> frozenset[str]:
    """UIDs that hold anything, by the files."""
    uids: set[str] = set()
    for part in (files.cpu, files.memory, files.devices) if files else ():
        if part is not None:
            uids |= part.entries.keys()
    return frozenset(uids)


def active_uids(
    view: KubeletView,
    listing: Listing | None,
    pods: Sequence[NodePod] | None,
    uids: Mapping[Name, str],
    *,
    drop_unknown: bool,
) -> frozenset[str]:
    """The UIDs, of those that the state files name, whose pods the kubelet takes for active.

    The API rules: it shows a pod terminal or gone only after the kubelet has let go of it. What it
    does not show may still be alive where podresources lists its very CPUs (a static pod without a
    mirror). Without the API, podresources of the same moment tells.
    """
    named = _known(view) | set(uids.values())
    shown = set() if listing is None or not view.coherent else _listed_uids(listing, uids)
    if pods is None:
        if listing is None or not view.coherent:
            return frozenset(named)
        return frozenset(uid for uid in named if uid in shown or _is_undecided(view, listing, uid))
    alive = {pod.uid for pod in pods if not pod.terminal}
    ended = {pod.uid for pod in pods if pod.terminal}
    return frozenset(
        uid
        for uid in named
        if uid in alive or (uid not in ended and (uid in shown or not drop_unknown))
    )


def _known(view: KubeletView) -> set[str]:
    named: set[str] = set()
    if view.cpu:
        named |= view.cpu.entries.keys() | view.cpu.pod_entries.keys()
    if view.memory:
        named |= view.memory.entries.keys() | view.memory.pod_entries.keys()
    if view.devices:
        named |= view.devices.entries.keys()
    if view.allocated:
        named |= view.allocated.pods.keys()
    return named


def _listed_uids(listing: Listing, uids: Mapping[Name, str]) -> set[str]:
    return {uids[pod.namespace, pod.name] for pod in listing.pods}


def _is_undecided(view: KubeletView, listing: Listing, uid: str) -> bool:
    """Whether a pod may be alive although podresources shows nothing of what it holds.

    Ordinary init containers are never listed, and a pod that holds nothing shows nothing.
    """
    holders: set[str] = set()
    for entries in (
        view.cpu.entries if view.cpu else {},
        view.memory.entries if view.memory else {},
        view.devices.entries if view.devices else {},
    ):
        holders |= entries.get(uid, {}).keys()
    known = view.allocated.pods.get(uid) if view.allocated else None
    if known is None:
        return not holders
    return any(
        names and names <= known and not names & holders
        for names in ({container.name for container in pod.containers} for pod in listing.pods)
    )


def admitted_uids(
    view: KubeletView,
    pods: Sequence[NodePod] | None,
    listing: Listing | None,
    uids: Mapping[Name, str],
    holdings: Iterable[str],
) -> frozenset[str]:
    """Who passed the whole admission chain, by the kubelet's own marker; where it keeps none, by
    the API's status; else whoever is known.
    """
    if view.allocated is not None:
        return frozenset(view.allocated.pods)
    if pods is not None:
        return frozenset(pod.uid for pod in pods if pod.admitted and not pod.terminal)
    return frozenset(holdings) | (frozenset(uids.values()) if listing else frozenset())
