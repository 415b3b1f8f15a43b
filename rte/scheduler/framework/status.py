"""A node's answer to a pod, and what the managers of its kubelet would say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.placement.groups.allocation import GroupsAllocation
    from rte.scheduler.framework import outlook


@dataclass(frozen=True, kw_only=True)
class Status:
    """One node's answer to one pod. ``reason`` is empty when the pod may go there.

    Attributes:
        reason: in kube-scheduler's or the kubelet's words.
        message: more of it, for ``rte explain``.
        plugin: name of the rule that says no; its events can change the answer.
        waits: something that passes by itself is all that stands in the way: a pod in flight, a
            reservation.
        resources: the pod would fit if some pods left (what preemption can change).
        second_best: the pod may go there when no other node does better.
        uncertain: a last resort: it is not known that the kubelet will admit the pod.
        verdict: of the managers, where they were asked.
        resource_status: Koordinator's annotation to write with the bind, if any.
        devices: Koordinator's ``device-allocated`` to write with the bind, if any.
        groups: what the pod's processing groups get there.
    """

    reason: str = ""
    message: str = ""
    plugin: str = ""
    waits: bool = False
    resources: bool = False
    second_best: bool = False
    uncertain: bool = False
    verdict: outlook.AdmissionOutlook | None = None
    resource_status: str = ""
    devices: str = ""
    groups: GroupsAllocation | None = None


#: Nothing stands in the way.
SUCCESS = Status()
