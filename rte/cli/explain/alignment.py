"""``rte explain --all`` without a pod: where running pods and their DRA devices are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from rte import errors, nrt
from rte.cli.inputs import KINDS
from rte.model import words
from rte.placement.dra import CEL, ClaimNode, DeviceInventory, DeviceSupply, Usage, decode, truth
from rte.placement.dra.alignment import Alignment
from rte.scheduler.framework import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rte.placement.dra.objects import ResourceClaim
    from rte.reader.json import JsonObject

_T = TypeVar("_T")

#: Collections of which :func:`observe` takes the objects; others are ignored.
COLLECTIONS = ("nodes", "reports", "pods", "slices", "device-claims")


@dataclass(frozen=True, kw_only=True)
class AlignmentRow:
    """A running pod with DRA devices; ``zones`` and those of ``devices`` None where not known."""

    pod: str
    node: str
    alignment: Alignment
    reason: str
    zones: str | None = None
    devices: dict[str, int | None]


def observe(items: Iterable[JsonObject]) -> tuple[list[AlignmentRow], list[str]]:
    """Every running pod that uses an allocated claim, and one line per malformed object."""
    problems: list[str] = []
    by_kind: dict[str, list[JsonObject]] = {KINDS[name]: [] for name in COLLECTIONS}
    for item in items:
        if item.get("kind") in by_kind:
            by_kind[item["kind"]].append(item)
    inventory = DeviceInventory()
    for one in _read(by_kind["ResourceSlice"], decode.resource_slice, problems):
        inventory.put_slice(one)
    claims = list(_read(by_kind["ResourceClaim"], decode.resource_claim, problems))
    reports = {
        one.name: one for one in _read(by_kind["NodeResourceTopology"], nrt.decode, problems)
    }
    labels = {one.name: one.labels for one in _read(by_kind["Node"], objects.read_node, problems)}
    pods = {uid: pod for pod in by_kind["Pod"] if (uid := _uid_if_running(pod))}
    rows = []
    for uid, own in sorted(_claims_by_pod(claims).items()):
        if uid in pods:
            metadata = pods[uid]["metadata"]
            name = f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"
            node = ClaimNode(
                name=(where := pods[uid]["spec"]["nodeName"]), labels=labels.get(where, {})
            )
            rows.append(_row(uid, name, node, own, reports.get(where), inventory))
    return sorted(rows, key=lambda row: (row.node, row.pod)), problems


def show(items: Iterable[JsonObject], output: str) -> int:
    """Print; 0 where no pod lies across zones, else 1."""
    rows, problems = observe(items)
    counts = Counter(row.alignment for row in rows)
    if output == "json":
        pods = [asdict(row) for row in rows]
        print(json.dumps({"pods": pods, "problems": problems}, indent=2))
    else:
        told = ", ".join(f"{counts[state]} {state}" for state in Alignment)
        print(f"{len(rows)} running pods with DRA devices: {told}")
        for row in rows:
            print("\n".join(_lines(row)))
        for line in problems:
            print(f"note: {line}")
    return 1 if counts[Alignment.ACROSS] else 0


def _lines(row: AlignmentRow) -> Iterator[str]:
    zones = "not known" if row.zones is None else row.zones or "none of its own"
    yield f"{row.alignment:<8} {row.node}  {row.pod}  CPUs and memory: {zones}"
    for device, zone in row.devices.items():
        yield f"           {device}: {'zone not known' if zone is None else f'zone {zone}'}"
    if row.reason:
        yield f"           {row.reason}"


def _row(
    uid: str,
    name: str,
    node: ClaimNode,
    claims: list[ResourceClaim],
    report: nrt.NRT | None,
    inventory: DeviceInventory,
) -> AlignmentRow:
    state = report.state if report is not None else None
    if report is None or state is None:
        text = f"node {node.name} has no report of rte"
        return AlignmentRow(
            pod=name, node=node.name, alignment=Alignment.UNKNOWN, reason=text, devices={}
        )
    pci = report.device_zones.pci if report.device_zones else None
    supply = DeviceSupply(pools=inventory.pools(node), classes={}, usage=Usage(), expressions=CEL())
    seen = next((one for one in truth.observe(state, pci, claims, supply) if one.uid == uid), None)
    if seen is None:
        text = "its kubelet has not admitted it yet"
        return AlignmentRow(
            pod=name, node=node.name, alignment=Alignment.UNKNOWN, reason=text, devices={}
        )
    return AlignmentRow(
        pod=name,
        node=node.name,
        alignment=seen.alignment,
        reason=seen.reason,
        zones=words.zones(seen.zones) if seen.zones else "",
        devices={"/".join(device): place.zone for device, place in seen.devices.items()},
    )


def _claims_by_pod(claims: Iterable[ResourceClaim]) -> dict[str, list[ResourceClaim]]:
    found: dict[str, list[ResourceClaim]] = {}
    for claim in claims:
        if claim.status.allocation is not None:
            for consumer in claim.status.reserved_for:
                found.setdefault(consumer.uid, []).append(claim)
    return found


def _uid_if_running(pod: JsonObject) -> str | None:
    bound = (pod.get("spec") or {}).get("nodeName")
    phase = (pod.get("status") or {}).get("phase")
    uid = (pod.get("metadata") or {}).get("uid")
    return uid if bound and phase not in ("Succeeded", "Failed") else None


def _read(
    items: Iterable[JsonObject], read: Callable[[JsonObject], _T], problems: list[str]
) -> Iterator[_T]:
    for item in items:
        try:
            yield read(item)
        except errors.ParseError as error:
            problems.append(f"{item['kind']} is left out: {error}")
