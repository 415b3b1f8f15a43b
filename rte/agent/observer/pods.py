"""The pods of this node as the API shows them: who is active, who has ended."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model import podspec
from rte.model.kubelet import NodePod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.model.pod import Pod

#: A mirror pod stands for a static one; deleting it by hand does not end the static pod.
_MIRROR = "kubernetes.io/config.mirror"

_TERMINAL = ("Succeeded", "Failed")


class PodTable:
    """What a watch of this node's pods has told so far.

    A pod that the API deleted stays as a terminal one until the kubelet's files forget it
    (:meth:`retain`): the kubelet writes nothing when a pod ends. A UID that the files know and the
    API does not is too new at first; after ``grace_s`` it is doubtful: long gone, or a static pod
    whose mirror is missing. Podresources can tell; who is gone is then :meth:`bury`-ed.
    What the files had before the first list (:meth:`expect`) is doubtful if that lacks it.

    Attributes:
        newcomers: pods that were seen before their admission, by UID, until they are
            :meth:`settled`.
        endings: UIDs of newcomers that are over, with the kubelet's reason where it refused them.
    """

    def __init__(self, *, grace_s: float = 2.0) -> None:
        self._before: frozenset[str] = frozenset()
        self._grace_s = grace_s
        self._pods: dict[str, NodePod] = {}
        self._ended: dict[str, NodePod] = {}
        self._unknown: dict[str, float] = {}
        self.newcomers: dict[str, Pod] = {}
        self.endings: dict[str, str] = {}
        self.listed = False

    def expect(self, uids: frozenset[str]) -> None:
        """The first list is to show these."""
        if not self.listed:
            self._before = uids

    def replace(self, items: Iterable[dict[str, Any]]) -> None:
        """Take a whole list; what it lacks has ended."""
        before = self._pods
        self._pods = {}
        for item in items:
            self.update(item)
        for uid, pod in before.items():
            if uid not in self._pods:
                self._ended[uid] = _ended(pod)
                if uid in self.newcomers:
                    self.endings.setdefault(uid, "")
        self._unknown |= dict.fromkeys(self._before - self._pods.keys(), -math.inf)
        self._before = frozenset()
        self.listed = True

    def update(self, obj: dict[str, Any]) -> bool:
        """Take one pod; True when that changes anything here."""
        pod = parse(obj)
        self._unknown.pop(pod.uid, None)
        self._note_newcomer(pod, obj)
        ended = self._ended.pop(pod.uid, None)
        if self._pods.get(pod.uid) == pod and ended is None:
            return False
        self._pods[pod.uid] = pod
        return True

    def remove(self, obj: dict[str, Any]) -> bool:
        """The API deleted a pod; True when that changes anything here."""
        pod = parse(obj)
        known = self._pods.get(pod.uid)
        if known is None:
            return False
        if pod.uid in self.newcomers:
            self.endings.setdefault(pod.uid, "")
        del self._pods[pod.uid]
        if _MIRROR not in ((obj.get("metadata") or {}).get("annotations") or {}):
            self._ended[pod.uid] = _ended(pod)
        return True

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

    def settled(self, uids: Iterable[str]) -> None:
        """What became of these newcomers is known."""
        for uid in uids:
            self.newcomers.pop(uid, None)
            self.endings.pop(uid, None)

    def _note_newcomer(self, pod: NodePod, obj: dict[str, Any]) -> None:
        if pod.terminal:
            if pod.uid in self.newcomers:
                self.endings[pod.uid] = podspec.rejection(obj.get("status") or {}) or ""
        elif not pod.admitted and pod.uid not in self.newcomers:
            with suppress(errors.ParseError):
                self.newcomers[pod.uid] = podspec.parse_pod(obj, defaults=False)

    def pods(self) -> tuple[NodePod, ...]:
        """All pods, the ended ones among them as terminal, in order of UID."""
        return tuple(pod for _, pod in sorted({**self._pods, **self._ended}.items()))


def parse(obj: dict[str, Any]) -> NodePod:
    """The few facts of a Pod object that matter here."""
    metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
    terminal = status.get("phase") in _TERMINAL
    return NodePod(
        uid=podspec.kubelet_uid(metadata),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        terminal=terminal,
        admitted=bool(status.get("startTime")) and not terminal,
    )


def _ended(pod: NodePod) -> NodePod:
    return NodePod(uid=pod.uid, namespace=pod.namespace, name=pod.name, terminal=True)
