"""Nodes with an inventory for processing groups, and pods that ask for groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rte.nrt import group_inventory
from rte.placement.groups import allocation
from rte.placement.groups.allocation import Record, parse_record
from rte.placement.groups.request import ANNOTATION
from rte.scheduler.loop import messages
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.desk import Desk, report_of

if TYPE_CHECKING:
    from rte.placement.groups.inventory import GroupInventory


def asking(*groups: dict[str, Any], **pod: Any) -> str:
    """A request; groups are named g0, g1 … where they have no name."""
    named = [{"name": f"g{i}", **group} for i, group in enumerate(groups)]
    return json.dumps({"version": 1, "groups": named, **pod})


class Rack(Desk):
    """Every node is :func:`two_sockets` with a kubelet that assigns no CPUs itself."""

    def __init__(self, **options: Any) -> None:
        self.inventories: dict[str, GroupInventory] = {}
        super().__init__(**options)

    def server(self, name: str, inventory: GroupInventory | None = None, **options: Any) -> None:
        self.inventories[name] = inventory or two_sockets()
        amounts = {"cpu": "32", "memory": "31Gi", "hugepages-1Gi": "32Gi"}
        none = {"cpu_policy": "none", "memory_policy": "None", "reserved_memory": {}}
        kubelet = state(machine(cpus=16), policy="none", **none)
        self.node(
            name, kubelet, allocatable={**amounts, **options.pop("allocatable", {})}, **options
        )

    def report(self, name: str) -> None:
        report = report_of(name, self.kubelets[name])
        if name in self.inventories:
            published = group_inventory.PublishedInventory(
                inventory=self.inventories[name], cpu_arch="skylake"
            )
            text = group_inventory.encode(published)
            assert text is not None
            report["metadata"].setdefault("annotations", {})[group_inventory.ANNOTATION] = text
        self.put("reports", name, report)

    def asks(self, request: str, **options: Any) -> str:
        """A pod with that request; its UID."""
        annotations = {ANNOTATION: request, **options.pop("annotations", {})}
        options.setdefault("guaranteed", False)
        return self.pod(cpu=options.pop("cpu", "1"), annotations=annotations, **options)

    def annotation(self, uid: str, key: str = allocation.ANNOTATION) -> str:
        return str(self.objects["pods", uid]["metadata"]["annotations"].get(key, ""))

    def record(self, uid: str) -> Record:
        return parse_record(self.annotation(uid))

    def why(self, uid: str) -> str:
        return self.machine.why(self.view(uid))

    def events(self, reason: str) -> list[str]:
        return [post.note for post in self.told(messages.Post) if post.reason == reason]
