"""Nodes that rest: for a while after a pod with groups has started or stopped there (pure).

NHD rests in the same way, so that pods which must not be disturbed have started before the next.
"""

from __future__ import annotations


class Settling:
    """Which nodes rest. Only :meth:`wake` ends a rest, so answers between two calls are stable."""

    def __init__(self) -> None:
        self._until: dict[str, dict[str, float]] = {}

    def rests(self, node: str) -> bool:
        """Whether the node rests."""
        return node in self._until

    def disturb(self, node: str, uid: str, until: float) -> None:
        """A pod has started or stopped there."""
        self._until.setdefault(node, {})[uid] = until

    def undo(self, node: str, uid: str) -> None:
        """The pod did not start after all."""
        if self._until.get(node, {}).pop(uid, None) is not None:
            self._tidy(node)

    def wake(self, now: float) -> tuple[str, ...]:
        """End the rests that are over; those nodes."""
        for node, pods in self._until.items():
            self._until[node] = {uid: until for uid, until in pods.items() if until > now}
        return tuple(node for node in list(self._until) if self._tidy(node))

    def _tidy(self, node: str) -> bool:
        """Forget a node that does not rest any more; whether it was one."""
        if self._until[node]:
            return False
        del self._until[node]
        return True
