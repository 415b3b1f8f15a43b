"""``rte explain --restart [NODE]``: what a restart of a kubelet would do to its pods."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING

from rte import config, errors
from rte.cli import live
from rte.cli.fit import read_sources
from rte.model.words import counted, share
from rte.scheduler.report.kubelets import restarted

if TYPE_CHECKING:
    import argparse

    from rte.kube.client import Client
    from rte.placement import Admission, PredictedRestart
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry


#: Seconds between two looks at a node.
_PAUSE_S = 1.0


def run(args: argparse.Namespace) -> int:
    """Tell it of files and machines, of a cluster, or of one node of a cluster until it is well."""
    offline = bool(args.sources or args.machine)
    if args.wait and (offline or not args.restart):
        raise errors.UsageError("--wait takes a NODE of a cluster")
    if offline or not args.restart:
        return show(read_sources(args)[0], args.restart, args.output)
    return asyncio.run(_wait(args))


async def _wait(args: argparse.Namespace) -> int:
    until = time.monotonic() + args.wait
    namespace = config.load("explain", vars(args), os.environ).scheduler.agent_namespace
    async with live.connect(args) as client:
        while True:
            cluster = await _look(client, args.restart, namespace, until)
            entry = cluster.nodes.get(args.restart)
            is_well = entry is not None and entry.info is not None and _answer(entry)["harmless"]
            if is_well or time.monotonic() >= until:
                return show(cluster, args.restart, args.output)
            await asyncio.sleep(_PAUSE_S)


async def _look(client: Client, node: str, agent_namespace: str, until: float) -> Cluster:
    """The node; an API server that is away for a while is waited for."""
    while True:
        try:
            return await live.read_node(client, node, agent_namespace)
        except errors.KubeError as error:
            if error.status in (401, 403) or time.monotonic() >= until:
                raise
        await asyncio.sleep(_PAUSE_S)


def show(cluster: Cluster, node: str, output: str) -> int:
    """Print what would become of one node, or (no name) of every node that would take harm.

    Returns:
        0 when no harm would be done, 1 when some would, or when nobody can know.

    Raises:
        errors.UsageError: there is no such node.
    """
    entries = [entry for entry in cluster.nodes.values() if entry.info is not None]
    if node:
        entries = [entry for entry in entries if entry.name == node]
        if not entries:
            raise errors.UsageError(f"node {node} not found")
    answers = [_answer(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    if not node:
        answers = [answer for answer in answers if not answer["harmless"]]
    if output == "json":
        print(json.dumps(answers, indent=2))
    else:
        print(
            "\n\n".join(_text(answer) for answer in answers) or "a restart does no harm on any node"
        )
    return 0 if all(answer["harmless"] for answer in answers) else 1


def _answer(entry: NodeEntry) -> JsonObject:
    told = restarted(entry)
    if told is None:
        why = entry.distrust() or "no agent of ours publishes this node's state"
        return {"node": entry.name, "harmless": False, "unknown": why}
    answer, pods = told
    kept = [
        uid
        for uid, admission in answer.admissions.items()
        if admission.admitted and uid not in answer.doubtful
    ]
    return {
        "node": entry.name,
        "harmless": answer.is_harmless,
        "start_error": answer.start_error,
        "start_doubtful": answer.start_doubtful,
        "kept": [pods[uid].key for uid in kept],
        "lost": [
            {"pod": pods[uid].key, **_why(uid, admission, answer)}
            for uid, admission in answer.admissions.items()
            if uid not in kept
        ],
    }


def _why(uid: str, admission: Admission, answer: PredictedRestart) -> dict[str, str]:
    if uid in answer.doubtful:
        return {
            "verdict": "uncertain",
            "reason": "DevicePluginsNotBack",
            "message": "the kubelet admits its pods before the device plugins are back: a finished "
            "init container (before Kubernetes 1.34.8 also a restarted one) may lack its devices",
        }
    return {
        "verdict": str(admission.verdict),
        "reason": admission.reason,
        "message": admission.message,
    }


def _text(answer: JsonObject) -> str:
    node = answer["node"]
    if "unknown" in answer:
        return f"? {node}: {answer['unknown']}"
    if answer["start_error"] or answer["start_doubtful"]:
        why = answer["start_error"] or "its memory manager may not find its own file in order"
        would = "starts or does not, by chance" if answer["start_doubtful"] else "would not start"
        return (
            f"- {node}: its kubelet {would}: {why}\n"
            "    drain the node, or remove the state file of that manager, before a restart"
        )
    kept, lost = len(answer["kept"]), len(answer["lost"])
    what = "with exclusive CPUs, memory or devices"
    if not lost:
        return f"+ {node}: a restart does no harm ({counted(kept, 'pod')} {what})"
    lines = [f"- {node}: a restart would refuse {share(lost, kept + lost, 'pod')} {what}"]
    for lost in answer["lost"]:
        lines.append(f"    {lost['pod']}: {lost['verdict']}, {lost['reason']}")
        lines.append(f"      {lost['message']}")
    lines.append(f"    rte drain {node} shows which of them to move first")
    return "\n".join(lines)
