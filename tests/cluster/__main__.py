"""``python -m tests.cluster``: a real cluster by hand. See CONTRIBUTING.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rte import errors
from tests.cluster import builder, images
from tests.cluster import cluster as clusters
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.processes import ClusterError, find, note

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODE_KEYS = {
    "name": None, "shape": None, "policy": "policy", "scope": "scope", "cpu-policy": "cpu_policy",
    "memory-policy": "memory_policy", "reserved-cpus": "reserved_cpus", "reconcile": "reconcile",
    "version": None,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = failed, 2 = usage error."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except (ClusterError, errors.RteError) as error:
        print(f"tests.cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    sub = command("build", _build, "build the Kubernetes binaries into the cache")
    _version(sub)
    sub.add_argument(
        "--only",
        action="append",
        choices=builder.PROGRAMS,
        help="one program, e.g. the kubelet of an older release; may be repeated (default all)",
    )

    sub = command(
        "image", _image, "build the shipped images, without a registry, into an OCI archive"
    )
    sub.add_argument(
        "out", type=Path, nargs="?", metavar="OUT.tar", help="default: the cache; prints its path"
    )

    command("containerd", _containerd, "build containerd into the cache; prints its folder")
    command("multus", _multus, "build Multus into the cache; prints its path")
    command("helm", _helm, "build helm into the cache; prints its path")
    command("kueue", _kueue, "build Kueue into the cache; prints its folder")

    sub = command("up", _up, "start a cluster; prints the KUBECONFIG to export")
    _version(sub)
    _name(sub)
    _node_options(sub)
    sub.add_argument("--nodes", type=int, default=1, help="number of nodes (default %(default)s)")
    sub.add_argument("--scheduler", action="store_true", help="also start the default scheduler")

    sub = command("add", _add, "add a node to a running cluster")
    _name(sub)
    _node_options(sub)

    sub = command("remove", _remove, "remove a node")
    _name(sub)
    sub.add_argument("node")

    sub = command("down", _down, "end a cluster, and remove what ended sessions left behind")
    _name(sub)
    sub.add_argument("--all", action="store_true", help="every cluster that `up` started")

    sub = command("sweep", _sweep, "remove what ended sessions left behind")
    sub.add_argument("--expect-none", action="store_true", help="fail when something was left")

    command("status", _status, "show clusters, their nodes and processes")

    sub = command("exec", _exec, "run a command in a node's mount namespace")
    _name(sub)
    sub.add_argument("node")
    sub.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")

    sub = command("token", _token, "print a service-account token bound to a node")
    _name(sub)
    sub.add_argument("account", help="NAMESPACE/NAME")
    sub.add_argument("node")
    return parser


def _version(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--version",
        default=builder.DEFAULT_VERSION,
        help=f"Kubernetes version: {', '.join(builder.PROVEN)} or a patch (default %(default)s)",
    )


def _name(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--name", default="default", help="of the cluster (default %(default)s)")


def _node_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="KEY=VALUE;...",
        help="one node of its own kind; keys: " + ", ".join(_NODE_KEYS) + "; may be repeated",
    )
    sub.add_argument(
        "--shape",
        default="2x32",
        help="ZONESxCPUS[,memory=64Gi,sockets=,threads=,memory-zones=,hugepages-2Mi=...], a "
        "fixture or a folder (default %(default)s)",
    )
    sub.add_argument("--policy", default="single-numa-node", help="topology manager policy")
    sub.add_argument("--scope", default="container", help="topology manager scope")
    sub.add_argument("--cpu-policy", default="static", help="CPU manager policy")
    sub.add_argument("--memory-policy", default="Static", help="memory manager policy")
    sub.add_argument(
        "--reserved-cpus", default="0", help="reservedSystemCPUs (default %(default)s)"
    )
    sub.add_argument("--reconcile", default="10s", help="cpuManagerReconcilePeriod")
    sub.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topology or CPU manager policy option, e.g. full-pcpus-only=true",
    )
    sub.add_argument("--kubelet-config", metavar="FILE", help="further KubeletConfiguration fields")
    sub.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="RESOURCE=ZONES",
        help="devices: RESOURCE=0/0/1/0+1/-/none (zones of each; - = empty topology, "
        "none = no topology)",
    )


def _image(args: argparse.Namespace) -> None:
    if args.out:
        images.build(args.out.absolute())
    else:
        print(images.archive())


def _multus(_: argparse.Namespace) -> None:
    print(builder.multus())


def _containerd(_: argparse.Namespace) -> None:
    print(builder.containerd())


def _kueue(_: argparse.Namespace) -> None:
    print(builder.kueue())


def _helm(_: argparse.Namespace) -> None:
    print(builder.helm())


def _build(args: argparse.Namespace) -> None:
    print(builder.build(args.version, args.only or builder.PROGRAMS).folder)


def _up(args: argparse.Namespace) -> None:
    begin = time.monotonic()
    plans = [_plan(args, text) for text in args.node] or [_plan(args, "")] * args.nodes
    cluster = clusters.Cluster.start(version=args.version, name=args.name, tied=False)
    try:
        nodes = [cluster.add_node(**plan, wait=False) for plan in plans]
        if args.scheduler:
            cluster.start_scheduler()
        for node in nodes:
            node.wait_ready(120)
    except BaseException:
        cluster.stop()
        raise
    note(f"{len(nodes)} nodes Ready after {time.monotonic() - begin:.1f} s; logs: {cluster.dir}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _add(args: argparse.Namespace) -> None:
    cluster = _cluster(args.name)
    for text in args.node or [""]:
        print(cluster.add_node(**_plan(args, text)).name)


def _remove(args: argparse.Namespace) -> None:
    _cluster(args.name).node(args.node).remove()


def _down(args: argparse.Namespace) -> None:
    # A session's own cluster ends with the session: never pull it from under running tests.
    mine = [
        cluster
        for cluster in clusters.clusters()
        if not cluster.info.get("tied")
        and (args.all or cluster.dir.name == clusters.PREFIX + args.name)
    ]
    for cluster in mine:
        cluster.stop()
        print(f"ended {cluster.dir}")
    if not _removed() and not mine and not args.all:
        raise ClusterError(f"no cluster {args.name}")


def _sweep(args: argparse.Namespace) -> int:
    return 1 if _removed() and args.expect_none else 0


def _removed() -> int:
    left = clusters.sweep()
    for piece in left:
        print(f"removed what an ended session left: {piece}")
    return len(left)


def _status(args: argparse.Namespace) -> None:
    for cluster in clusters.clusters():
        count = sum(1 for _ in find(cluster.dir))
        owner = " (of a session)" if cluster.info.get("tied") else ""
        version = cluster.info.get("version", "?")
        print(f"{cluster.dir}{owner}: Kubernetes {version}, {count} processes")
        if not count:
            print("  left behind: `python -m tests.cluster down` removes it")
            continue
        print(f"  export KUBECONFIG={cluster.kubeconfig}")
        for node in cluster.nodes():
            config = node.config
            state = "runs" if cluster.pids(f"{node.name}/kubelet") else "stopped"
            print(
                f"  {node.name}: kubelet {node.version} {state}, {node.machine.name}, "
                f"{config['topologyManagerPolicy']}/{config['topologyManagerScope']}"
            )


def _exec(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    node = _cluster(args.name).node(args.node)
    return subprocess.run(
        [*node.enter(), *(command or [os.environ.get("SHELL", "sh")])], check=False
    ).returncode


def _token(args: argparse.Namespace) -> None:
    namespace, _, account = args.account.rpartition("/")
    print(_cluster(args.name).token(account, namespace or "default", node=args.node))


def _cluster(name: str) -> clusters.Cluster:
    return clusters.Cluster.attach(clusters.BASE / f"{clusters.PREFIX}{name}")


def _plan(args: argparse.Namespace, text: str) -> dict[str, Any]:
    """Arguments of ``add_node`` from the flags and one ``--node`` text over them."""
    given: dict[str, str] = {}
    for item in filter(None, text.split(";")):
        key, equals, value = item.partition("=")
        if not equals or key not in _NODE_KEYS:
            raise ClusterError(f"--node {text!r}: {key!r} is none of {', '.join(_NODE_KEYS)}")
        given[key] = value
    settings: dict[str, Any] = {
        name: given.get(key, getattr(args, key.replace("-", "_")))
        for key, name in _NODE_KEYS.items()
        if name
    }
    topology_options, cpu_options = {}, {}
    for option in args.option:
        name, _, value = option.partition("=")
        target = topology_options if "numa-nodes" in name else cpu_options
        target[name] = value
    settings |= {"topology_options": topology_options, "cpu_options": cpu_options}
    if args.kubelet_config:
        settings |= yaml.safe_load(Path(args.kubelet_config).read_text()) or {}
    return {
        "name": given.get("name", ""),
        "shape": given.get("shape", args.shape),
        "version": given.get("version", ""),
        "kubelet": kubelet_config(**settings),
        "devices": dict(map(_devices, args.device)) or None,
    }


def _devices(text: str) -> tuple[str, list[list[int] | None]]:
    resource, _, zones = text.partition("=")
    forms: dict[str, list[int] | None] = {"none": None, "-": []}
    try:
        return resource, [
            forms[one] if one in forms else [int(zone) for zone in one.split("+")]
            for one in zones.split("/")
        ]
    except ValueError as error:
        raise ClusterError(f"--device {text!r}: give zones as 0/0+1/-/none") from error


if __name__ == "__main__":
    sys.exit(main())
