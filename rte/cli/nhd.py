"""What ``rte import nhd`` does: NHD's forms in rte's own."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model.words import counted
from rte.placement.groups import explain
from rte.placement.groups.allocation import devices_of
from rte.placement.groups.nhd import labels, replay, triad, triadset
from rte.placement.groups.nhd.adopt import ANNOTATION as NHD_FILE
from rte.placement.groups.place import place
from rte.placement.groups.request import ANNOTATION
from rte.placement.groups.search.supply import GroupSupply
from rte.reader import jsontext
from rte.reader.files import read_text

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from rte.reader.json import JsonObject


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.form == "triad":
        return _triad(args.file, fields=args.fields)
    if args.form == "labels":
        return _labels(args.file)
    if args.form == "place":
        return _place(args.config, args.file, args.node_groups, args.groups_policy)
    if args.form == "replay":
        return _replay(args.file, args.output, args.groups_policy)
    return _triad_sets(args.file, args.scheduler_name, nhd_config=args.nhd_config)


def _triad(file: Path, *, fields: bool) -> int:
    imported = triad.read(read_text(file))
    _ = imported.request  # which is valid, or says why not
    document: Any = imported.document
    if fields:
        document = {ANNOTATION: imported.document, "fields": imported.fields}
    print(json.dumps(document, indent=2))
    return 0


def _objects(files: list[Path], *kinds: str) -> list[JsonObject]:
    from rte.reader.files import load_objects  # here: it brings the scheduler with it

    return [found for found in load_objects(files) if found["kind"] in kinds]


def _labels(files: list[Path]) -> int:
    from rte.nrt import group_inventory

    nodes = _objects(files, "Node")
    if not nodes:
        raise errors.UsageError("the files hold no Node")
    documents = []
    for node in nodes:
        metadata, status = node.get("metadata") or {}, node.get("status") or {}
        read = labels.read(metadata.get("labels") or {}, status.get("allocatable") or {})
        inventory = group_inventory.encode(
            group_inventory.PublishedInventory(inventory=read.inventory)
        )
        documents.append(
            {
                "node": metadata.get("name", ""),
                "nodeGroups": read.facts.groups,
                "maintenance": read.facts.maintenance,
                "values": read.values,
                "inventory": None if inventory is None else jsontext.load(inventory, "inventory"),
            }
        )
    print(json.dumps(documents, indent=2))
    return 0


def _replay(files: list[Path], output: str, policy: Path | None) -> int:
    from rte.scheduler.shell.policies import load_policies

    policies = load_policies(policy)
    nodes, pods = _recorded_cluster(files)
    if not nodes or not pods:
        raise errors.UsageError("the files hold no Nodes of NHD, or no pods that it has placed")
    compared = replay.replay(nodes, pods, policies.default)
    if output == "json":
        print(json.dumps([asdict(it) for it in compared], indent=2))
        return 0
    for it in compared:
        print(f"{it.name}: {it.kind}: {it.node} -> {it.ours or '-'}")
        for line in it.why:
            print(f"  {line}")
    counts = Counter(it.kind for it in compared)
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    print(f"{counted(len(compared), 'pod')}: {told}")
    return 0


def _recorded_cluster(
    files: list[Path],
) -> tuple[dict[str, labels.LabelledNode], list[replay.RecordedPod]]:
    """Nodes by NHD's labels, and the pods that it has placed."""
    objects = _objects(files, "Node", "Pod")
    nodes = {}
    for found in (it for it in objects if it["kind"] == "Node"):
        metadata, status = found.get("metadata") or {}, found.get("status") or {}
        name = str(metadata.get("name") or "")
        try:
            nodes[name] = labels.read(metadata.get("labels") or {}, status.get("allocatable") or {})
        except errors.ParseError as error:
            print(f"node {name} is left out: {error}", file=sys.stderr)
    return nodes, [it for it in map(_recorded, objects) if it is not None]


def _place(file: Path, files: list[Path], node_groups: str, policy: Path | None) -> int:
    """Where a configuration file's pod would go on nodes as NHD knows them; 1: nowhere."""
    from rte.cli import grouping
    from rte.scheduler.shell.policies import load_policies

    rules = load_policies(policy).default
    nodes, pods = _recorded_cluster(files)
    if not nodes:
        raise errors.UsageError("the files hold no Nodes of NHD")
    names = tuple(sorted(filter(None, map(str.strip, node_groups.split(",")))))
    # Labels tell no architecture.
    request = replace(triad.read(read_text(file)).request, node_groups=names, cpu_arch=("any",))
    fits = False
    for name, held in replay.holdings_of(nodes, pods):
        if isinstance(held, str):
            print(f"- {name}: {held}")
            continue
        node = nodes[name]
        decision = place(request, node.inventory, held, rules, node.facts)
        if decision.allocation is None:
            print(f"- {name}: {', '.join(decision.reasons)}")
            lines = grouping.left(explain.free(GroupSupply(node.inventory, held, rules)))
        else:
            fits = True
            print(f"+ {name}: fits")
            devices = devices_of(decision.allocation, node.inventory)
            lines = grouping.given({**decision.allocation.document(), "devices": devices})
        for line in lines:
            print(f"    {line}")
    return 0 if fits else 1


def _recorded(found: JsonObject) -> replay.RecordedPod | None:
    """A pod with NHD's file, on a node and not over."""
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    status, annotations = found.get("status") or {}, metadata.get("annotations") or {}
    over = status.get("phase") in ("Succeeded", "Failed")
    if found["kind"] != "Pod" or over or not spec.get("nodeName") or NHD_FILE not in annotations:
        return None
    groups = sorted(filter(None, map(str.strip, annotations.get(triadset.GROUPS, "").split(","))))
    return replay.RecordedPod(
        name=f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}",
        node=spec["nodeName"],
        file=annotations[NHD_FILE],
        node_groups=tuple(groups) or ("default",),
        started=str(status.get("startTime") or metadata.get("creationTimestamp") or ""),
    )


def _triad_sets(files: list[Path], scheduler_name: str, *, nhd_config: bool) -> int:
    import yaml

    objects = _objects(files, "TriadSet", "ConfigMap")
    sets = [found for found in objects if found["kind"] == "TriadSet"]
    if not sets:
        raise errors.UsageError("the files hold no TriadSet")
    for found in sets:
        namespace = (found.get("metadata") or {}).get("namespace")
        maps = {
            it["metadata"]["name"]: it.get("data") or {}
            for it in objects
            if it["kind"] == "ConfigMap" and it["metadata"].get("namespace") == namespace
        }
        converted = triadset.convert(found, maps, scheduler_name, nhd_config=nhd_config)
        print("---")
        print(yaml.safe_dump(converted, sort_keys=False), end="")
    return 0
