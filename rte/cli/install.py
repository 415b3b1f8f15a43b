"""``rte install``: the commands that build the images, bring them to the nodes and install rte."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rte import __version__, errors

if TYPE_CHECKING:
    import argparse

BUILDERS = ("docker", "podman", "buildah")
#: Where images go without a registry -> the command that brings one there.
LOADERS: Final = {
    "kind": "kind load docker-image {image}",
    "minikube": "minikube image load {image}",
    "k3d": "k3d image import {image}",
    "containerd": "{builder} save {image} | sudo ctr -n k8s.io images import -",
    "k3s": "{builder} save {image} | sudo k3s ctr images import -",
    "microk8s": "{builder} save {image} | sudo microk8s ctr images import -",
}
#: Before images that are in no registry: no runtime asks anybody for an image of that name.
_NO_REGISTRY = "localhost"
_CRD = "noderesourcetopologies.topology.node.k8s.io"
_NAMESPACE = "rte-system"
#: The CA of OpenShift's kubelets, where the agent looks for it.
_OPENSHIFT = (
    f"kubectl create namespace {_NAMESPACE} --dry-run=client -o yaml | kubectl apply -f -\n"
    "kubectl get configmap kubelet-serving-ca -n openshift-config-managed -o yaml | "
    f"sed 's/namespace: .*/namespace: {_NAMESPACE}/' | kubectl apply -f -"
)
#: A host with a port, and folders, as a reference to an image has them.
_REGISTRY = re.compile(r"[a-z0-9.-]+(:\d{1,5})?(/[a-z0-9._-]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "--layout",
        required=True,
        metavar="NAME",
        help="of the nodes: a folder of manifests/layouts (kubeadm, which kind's nodes have as "
        "well, k3s, gke, openshift, ...)",
    )
    images = parser.add_mutually_exclusive_group(required=True)
    images.add_argument(
        "--registry", metavar="HOST/PATH", help="push the images there, from where nodes pull them"
    )
    images.add_argument(
        "--load", choices=LOADERS, help="no registry: hand the images to the nodes of this machine"
    )
    add("--tag", default=__version__, help="of the images (default: %(default)s)")
    add("--builder", choices=BUILDERS, default="docker", help="what builds the images")
    add("--without-scheduler", action="store_true", help="the agent alone")
    add("--source", type=Path, default=Path(), metavar="DIR", help="a clone of rte's repository")
    add("--apply", action="store_true", help="run the commands; else they are printed")


def run(args: argparse.Namespace) -> int:
    """Print the commands, or run them until one fails."""
    script = "\n".join(commands(args))
    if not args.apply:
        print(script)
        return 0
    # Each command is shown before it runs, as `sh` shows it.
    done = subprocess.run(["/bin/sh", "-eux", "-c", script], check=False)  # noqa: S603 - its own
    if done.returncode:
        raise errors.RteError(
            f"the command shown last failed with exit code {done.returncode}; all of them can be "
            "run again"
        )
    print("installed; `rte doctor` checks it", file=sys.stderr)
    return 0


def commands(args: argparse.Namespace) -> list[str]:
    """What is to be typed in a shell, in the clone's folder.

    Raises:
        errors.UsageError: there is no clone, no such layout, or a name is not one.
    """
    parts = ("agent",) if args.without_scheduler else ("agent", "scheduler")
    layouts = sorted(path.name for path in (args.source / "manifests/layouts").glob("*"))
    if not layouts or not (args.source / "Dockerfile").is_file():
        raise errors.UsageError(f"{args.source}: no clone of rte's repository, give --source DIR")
    if args.layout not in layouts:
        raise errors.UsageError(f"--layout {args.layout}: there are {', '.join(layouts)}")
    if args.registry is not None and not _REGISTRY.fullmatch(args.registry):
        raise errors.UsageError(f"--registry {args.registry}: expected HOST/PATH, as images have")
    if not _TAG.fullmatch(args.tag):
        raise errors.UsageError(f"--tag {args.tag}: not the tag of an image")
    if args.load and args.builder == "buildah":
        raise errors.UsageError("--builder buildah: it has no images of a daemon, give --registry")
    prefix = args.registry or _NO_REGISTRY
    images = {part: f"{prefix}/rte-{part}:{args.tag}" for part in parts}
    bring = LOADERS[args.load] if args.load else "{builder} push {image}"
    lines = [] if args.source == Path() else [f"cd {shlex.quote(str(args.source))}"]
    lines.append("# the images, from this clone")
    for part, image in images.items():
        lines.append(f"{args.builder} build --target {part} -t {image} .")
        lines.append(bring.format(builder=args.builder, image=image))
    lines.append("# the CRD; one that is there stays as it is")
    lines.append(f"kubectl get crd {_CRD} || kubectl create -k manifests/crd")
    if args.layout == "openshift":
        lines.append("# the CA that signs the kubelets' certificates")
        lines.append(_OPENSHIFT)
    lines.append("# the manifests, with these images")
    folders = {"agent": f"manifests/layouts/{args.layout}", "scheduler": "manifests/scheduler"}
    lines.extend(
        f"kubectl kustomize {folders[part]} | sed 's|image: rte-{part}:.*|image: {image}|' | "
        "kubectl apply -f -"
        for part, image in images.items()
    )
    lines.append("# until they run")
    workloads = {"agent": "ds/rte-agent", "scheduler": "deploy/rte-scheduler"}
    lines.extend(
        f"kubectl rollout status -n {_NAMESPACE} {workloads[part]} --timeout=300s" for part in parts
    )
    return lines
