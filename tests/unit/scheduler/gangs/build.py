"""Gangs of each source in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.scheduler.loop import messages
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A source of gangs -> what its pods carry, for a gang of that name.
MARKS = {
    "podgroups": lambda name, _: {"schedulingGroup": {"podGroupName": name}},
    "workloads-1.35": lambda name, _: {"workloadRef": {"name": f"w-{name}", "podGroup": name}},
    "podgroups-coscheduling": lambda name, _: {"labels": {"scheduling.x-k8s.io/pod-group": name}},
    "koordinator": lambda name, count: {
        "annotations": {
            "gang.scheduling.koordinator.sh/name": name,
            "gang.scheduling.koordinator.sh/min-available": str(count),
        }
    },
}


class Square(Desk):
    """A desk with nodes of two zones of 8 CPUs (15 to be had on each), and gangs."""

    def __init__(self, nodes: int = 2, **options: Any) -> None:
        super().__init__(**options)
        for number in range(nodes):
            self.node(f"n{number}", state(machine(cpus=8)), labels={"rack": f"r{number // 2}"})

    def group(self, name: str, count: int | None, source: str = "podgroups", **spec: Any) -> None:
        """The object that describes the gang, where its source has one."""
        policy = {"basic": {}} if count is None else {"gang": {"minCount": count}}
        metadata = {"name": name, "namespace": "default"}
        match source:
            case "podgroups" | "podgroups-1.36":
                body: dict[str, Any] = {"spec": {"schedulingPolicy": policy, **spec}}
            case "workloads-1.35":
                metadata["name"] = f"w-{name}"
                body = {"spec": {"podGroups": [{"name": name, "policy": policy}]}}
            case "podgroups-coscheduling":
                body = {"spec": {"minMember": count, **spec}}
            case _:
                return
        self.put(source, f"default/{metadata['name']}", {"metadata": metadata, **body})

    def members(
        self,
        name: str,
        cpus: Sequence[Any],
        source: str = "podgroups",
        count: int = 0,
        **options: Any,
    ) -> list[str]:
        """Pods of the gang; their UIDs. ``count``: of Koordinator's annotation."""
        mark = MARKS[source](name, count or len(cpus))
        first = sum(1 for kind, _ in self.objects if kind == "pods")
        uids = []
        for number, each in enumerate(cpus):
            own = {**options, **mark}
            for part in ("labels", "annotations"):
                if part in options or part in mark:
                    own[part] = {**options.get(part, {}), **mark.get(part, {})}
            uids.append(self.pod(f"{name}-{first + number}", each, **own))
        return uids

    def places(self, uids: Sequence[str]) -> list[str]:
        return [self.where(uid) if ("pods", uid) in self.objects else "" for uid in uids]

    def placed(self, uids: Sequence[str]) -> int:
        return sum(1 for node in self.places(uids) if node)

    def said(self, uid: str) -> str:
        """What users were last told of a pod."""
        found = [e.message for e in self.told(messages.Unschedulable) if e.pod.uid == uid]
        return found[-1] if found else ""
