"""Exporters as subjects of a bench: a command template that runs in a node's mount namespace."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from tests.cluster.cluster import Cluster
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.node import Node

NRTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
CRD = Path(__file__).parent.parent / "manifests/crd/noderesourcetopologies.yaml"

#: Our agent, as a DaemonSet pod would run it: the node's namespace makes every default right.
OURS = (
    f"rte={sys.executable} -m rte run --node-name {{node}} --kubeconfig {{kubeconfig}}"
    " --metrics-listen off --lease-namespace kube-node-lease"
)


@dataclass(frozen=True)
class Subject:
    """A named command; ``{node}``, ``{kubeconfig}``, ``{config}`` and ``{port}`` are filled in."""

    name: str
    template: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """``NAME=COMMAND``."""
        name, equals, template = text.partition("=")
        if not equals or not template.strip():
            raise errors.UsageError(f"bad subject {text!r}: expected NAME=COMMAND")
        return cls(name, template)

    def argv(self, node: Node) -> list[str]:
        """The command for one node."""
        filled = self.template.format(
            node=node.name,
            kubeconfig=node.cluster.kubeconfig,
            config=node.config_file,
            port=node.port,
        )
        return shlex.split(filled)

    def start(self, node: Node) -> int:
        """Start it on the node; its process id."""
        return node.spawn("subject", self.argv(node))

    def stop(self, node: Node) -> None:
        """End it, and remove what it published."""
        node.stop("subject")
        node.cluster.api.delete(f"{NRTS}/{node.name}")


@dataclass(frozen=True, slots=True)
class Seen:
    """One watch event, by the wall clock as it arrived."""

    at: float
    kind: str
    object: dict[str, Any]
    size: int


@dataclass
class Watcher:
    """Follows a collection in a thread of its own."""

    cluster: Cluster
    path: str
    selector: str
    events: list[Seen] = field(default_factory=list)

    def start(self) -> None:
        """Begin; returns at once."""
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        api = self.cluster.client(str(self.cluster.info["token"]))
        while True:
            try:
                response = api._send(
                    "GET", self.path, None, "", 3600,
                    {"watch": "1", "fieldSelector": self.selector, "timeoutSeconds": 3600},
                    stream=True,
                )  # fmt: skip
                buffer = b""
                for chunk in response.stream(1 << 20):
                    now = time.time()
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        event = orjson.loads(line)
                        seen = Seen(now, event["type"], event["object"], len(line))
                        with self._changed:
                            self.events.append(seen)
                            self._changed.notify_all()
            except (errors.KubeError, ClusterError):
                time.sleep(0.2)

    def wait(self, since: int, fits: Callable[[Seen], bool], seconds: float) -> Seen | None:
        """The first event from index ``since`` on that fits; None: not in time."""
        deadline = time.monotonic() + seconds
        index = since
        with self._changed:
            while True:
                while index < len(self.events):
                    if fits(self.events[index]):
                        return self.events[index]
                    index += 1
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)


@contextmanager
def one_node(**options: Any) -> Iterator[Node]:
    """A cluster with the CRD and one node."""
    cluster = Cluster.start()
    try:
        cluster.kubectl("create", "-f", CRD)
        cluster.api.wait(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "noderesourcetopologies.topology.node.k8s.io",
            lambda crd: (
                crd is not None
                and any(
                    condition["type"] == "Established" and condition["status"] == "True"
                    for condition in crd.get("status", {}).get("conditions", [])
                )
            ),
        )
        yield cluster.add_node(**options)
    finally:
        cluster.stop()


def quantile(values: list[float], share: float) -> float | None:
    """The value below which ``share`` of them lie, in milliseconds."""
    if not values:
        return None
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)
