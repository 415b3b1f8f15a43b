"""The scheduler on real kubelets, with the rights of manifests/scheduler."""

from __future__ import annotations

import itertools
import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte import nrt
from rte.scheduler.framework.objects import PLACEMENT, TELL_PLACEMENT
from rte.scheduler.front.wakeups import WAKE_ANNOTATION
from tests.cluster import agents, processes
from tests.cluster.certs import Authority
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.pods import container, path, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

NAME = "rte-scheduler"
PODS = "/api/v1/namespaces/default/pods"

#: rte with a wrong rule.
MISTAKEN = (
    "-c",
    """
import sys
import pytest
from rte.cli import main
from tests.unit.placement.drift import wrong
wrong.plant(pytest.MonkeyPatch())
sys.exit(main())
""",
)

_numbers = itertools.count(1)


class Schedulers:
    """``rte scheduler`` processes that act with their service account."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.roles: list[str] = []
        agents.install(cluster)
        for folder in ("scheduler", "apart/scheduler"):
            rights = agents.MANIFESTS / folder / "rbac.yaml"
            cluster.kubectl("apply", "--server-side", "-f", rights)
        cluster.api.wait(
            f"/api/v1/namespaces/{agents.NAMESPACE}/serviceaccounts", NAME, lambda a: a is not None
        )

    def start(
        self, *flags: str, program: Sequence[str] = ("-m", "rte"), account: str = NAME
    ) -> str:
        """Start one; its role is returned. ``program``: what Python runs in the place of rte."""
        role = f"rte-scheduler-{next(_numbers)}"
        self.roles.append(role)
        folder = self.cluster.dir / role
        folder.mkdir(exist_ok=True)
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(self.cluster.token(account, agents.NAMESPACE))
        access = self.cluster.write_kubeconfig(folder / "kubeconfig", {"tokenFile": str(token)})
        self.cluster.spawn(
            role,
            [
                sys.executable, *program, "scheduler", f"--kubeconfig={access}",
                f"--lease-namespace={agents.NAMESPACE}",
                f"--listen=127.0.0.1:{processes.free_port()}", *flags,
            ],
        )  # fmt: skip
        return role

    def kill(self, role: str) -> None:
        """As an out-of-memory killer would."""
        for process in processes.find(self.cluster.dir, role):
            process.send_signal(signal.SIGKILL)
        self.cluster.stop_role(role, grace=0)

    def log(self, role: str) -> str:
        return (self.cluster.dir / f"{role}.log").read_text()


@pytest.fixture
def schedulers(cluster: Cluster) -> Iterator[Schedulers]:
    made = Schedulers(cluster)
    yield made
    for role in made.roles:
        cluster.stop_role(role, grace=2)


@dataclass
class Jobs:
    """Pods that run for a time and are deleted; nobody re-creates a refused one."""

    cluster: Cluster
    names: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    bound: dict[str, set[str]] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)

    def add(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        self.names.add(name)
        self.cluster.api.create(PODS, obj)

    def run(self, seconds: float, last: float, between: Callable[[float], Any]) -> None:
        """Until all are done; each lasts ``last`` seconds. ``between`` gets the seconds so far."""
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            assert now - begin < seconds, self.waiting()
            between(now - begin)  # first: it may add pods when all are done
            if not self.names - self.done - self.failed.keys():
                return
            try:
                items = self.cluster.api.get(PODS)["items"]
            except Exception as error:  # noqa: BLE001 - the API server may be away on purpose
                assert getattr(error, "status", 0) in (0, 500, 503), error
                time.sleep(0.2)
                continue
            for item in items:
                self._look(item, now, last)
            time.sleep(0.1)

    def waiting(self) -> dict[str, str]:
        """What each pod that is not done says of itself."""
        out = {}
        for item in self.cluster.api.get(PODS)["items"]:
            name = item["metadata"]["name"]
            if name in self.names - self.done:
                conditions = item["status"].get("conditions", ())
                out[name] = f"{item['status'].get('phase')} " + "; ".join(
                    str(c.get("message")) for c in conditions if c["type"] == "PodScheduled"
                )
        return out

    def _look(self, item: Object, now: float, last: float) -> None:
        name, phase = item["metadata"]["name"], item["status"].get("phase")
        if name not in self.names or name in self.done:
            return
        if item["spec"].get("nodeName"):
            self.bound.setdefault(name, set()).add(item["spec"]["nodeName"])
        if phase == "Failed":
            self.failed[name] = f"{item['status'].get('reason')}: {item['status'].get('message')}"
        elif phase == "Running":
            self.started.setdefault(name, now)
            if now - self.started[name] > last:
                self.cluster.api.delete(path(item), grace=0)
                self.done.add(name)


def with_agents(nodes: Sequence[Node]) -> None:
    for node in nodes:
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)


def port_is_free(cluster: Cluster) -> bool:
    """Whether the killed API server's port can be listened on again."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", cluster.info["port"]))
        except OSError:
            return False
    return True


def random_pod(rng: random.Random, number: int) -> Object:
    """Pinned, sharing, device-bound and memory-bound pods, sidecars and init containers."""
    kind = rng.choice(["pinned", "pinned", "two", "device", "ordinary", "init", "fraction"])
    memory = f"{rng.choice([256, 512, 1024])}Mi"
    boxes = [container(rng.choice([1, 2, 3, 4, 6]), memory)]
    init: list[Object] = []
    if kind == "two":
        boxes.append(container(rng.choice([1, 2, 4]), memory))
    if kind == "device":
        boxes = [container(rng.choice([1, 2]), memory, **{"example.com/gpu": 1})]
    if kind == "ordinary":
        boxes = [container("300m", memory, limits={})]
    if kind == "init":
        init = [container(2, memory, command=["true"]), container(1, memory, sidecar=True)]
    if kind == "fraction":
        boxes = [container("1500m", memory)]
    return pod(*boxes, init=init, name=f"job-{number}", scheduler=NAME)


def test_a_mixed_cluster_meets_no_refusal(
    cluster: Cluster,
    schedulers: Schedulers,
    fresh_nodes: Callable[[Sequence[dict[str, Any]]], list[Node]],
    tmp_path: Path,
) -> None:
    gpus = {"example.com/gpu": [[0], [1], [1]]}
    nodes = fresh_nodes(
        [
            {"shape": "2x8", "kubelet": kubelet_config(), "devices": gpus},
            {"shape": "2x8", "kubelet": kubelet_config(scope="pod")},
            {"shape": "4x4", "kubelet": kubelet_config(policy="restricted"), "devices": gpus},
            {"shape": "2x8", "kubelet": kubelet_config(policy="best-effort")},
            {"shape": "2x8", "kubelet": kubelet_config(policy="none", cpu_policy="none")},
        ]
    )
    with_agents(nodes)
    schedulers.start()
    rng = random.Random(5)
    jobs = Jobs(cluster)
    for number in range(60):
        jobs.add(random_pod(rng, number))
    jobs.run(180, 2.0, lambda _: None)
    assert jobs.failed == {}


def test_killed_schedulers_and_api_servers_lose_and_double_nothing(
    cluster: Cluster,
    schedulers: Schedulers,
    fresh_nodes: Callable[[Sequence[dict[str, Any]]], list[Node]],
) -> None:
    nodes = fresh_nodes([{"shape": "2x8", "kubelet": kubelet_config()}] * 2)
    with_agents(nodes)
    rng = random.Random(11)
    replicas = [schedulers.start(), schedulers.start()]
    moments = sorted(rng.uniform(1, 20) for _ in range(10))
    restart = [10.0]

    def trouble(seconds: float) -> None:
        if moments and seconds > moments[0]:
            moments.pop(0)
            schedulers.kill(replicas.pop(0))
            replicas.append(schedulers.start())
        if restart and seconds > restart[0]:
            restart.pop()
            cluster.stop_apiserver()
            processes.wait_until(lambda: port_is_free(cluster), 20, "the API server's port")
            cluster.start_apiserver()

    jobs = Jobs(cluster)
    for number in range(60):
        boxes = [container(rng.choice([2, 3, 4, 6]), "512Mi") for _ in range(rng.choice([1, 2]))]
        jobs.add(pod(*boxes, name=f"job-{number}", scheduler=NAME))
    jobs.run(240, 1.5, trouble)
    assert moments == []
    assert jobs.failed == {}
    assert all(len(places) == 1 for places in jobs.bound.values())
    for role in schedulers.roles:
        assert "Traceback" not in schedulers.log(role)


def test_the_successor_is_active_within_five_seconds(
    cluster: Cluster, schedulers: Schedulers, fresh_node: Callable[..., Node]
) -> None:
    node = fresh_node(shape="2x8")
    with_agents([node])
    first = schedulers.start()
    cluster.run_pod(pod(container(1, "64Mi"), scheduler=NAME))
    second = schedulers.start()
    processes.wait_until(lambda: "in sync" in schedulers.log(second), 20, "the second replica")
    assert "is active" not in schedulers.log(second)
    begin = time.monotonic()
    schedulers.kill(first)
    processes.wait_until(lambda: "is active" in schedulers.log(second), 30, "the successor")
    assert time.monotonic() - begin < 6.5  # five seconds, and what a busy machine adds
    cluster.run_pod(pod(container(1, "64Mi"), scheduler=NAME))


@pytest.fixture
def pools(cluster: Cluster, schedulers: Schedulers) -> Iterator[list[str]]:
    """Accounts of two pools, with the rights of manifests/pool."""
    accounts, applied = [], []
    rendered = cluster.kubectl("kustomize", agents.MANIFESTS / "pool")
    for letter in "ab":
        text = rendered.replace("rte-scheduler-a", f"rte-scheduler-{letter}")
        text = text.replace("rte-explain-a", f"rte-explain-{letter}")
        wanted = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        found = [obj for obj in yaml.safe_load_all(text) if obj["kind"] in wanted]
        applied.append(yaml.safe_dump_all(found))
        cluster.kubectl("apply", "--server-side", "-f", "-", text=applied[-1])
        accounts.append(f"{NAME}-{letter}")
    yield accounts
    for text in applied:
        # The pools share what has no name of its own.
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=text)


def test_two_pools_are_served_side_by_side(
    cluster: Cluster,
    schedulers: Schedulers,
    pools: list[str],
    fresh_nodes: Callable[[Sequence[dict[str, Any]]], list[Node]],
) -> None:
    """Each has its nodes, its Lease and its pods; a node that changes pools is taken over."""
    label = "topology.rte.dev/pool"
    plans = [{"shape": "2x8", "kubelet": kubelet_config(), "labels": {label: x}} for x in "ab"]
    nodes = first, second = fresh_nodes(plans)
    with_agents(nodes)
    for account, letter in zip(pools, "ab", strict=True):
        schedulers.start(
            f"--scheduler-name={account}", f"--nodes={label}={letter}", account=account
        )

    def asked(name: str, pool: str) -> Object:
        return pod(container(6, "512Mi"), name=name, scheduler=pool)

    ran = [cluster.run_pod(asked(f"in-{pool}", pool)) for pool in pools]
    assert [obj["spec"]["nodeName"] for obj in ran] == [first.name, second.name]
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{agents.NAMESPACE}/leases"
    assert all(cluster.api.get(f"{leases}/{name}")["spec"]["holderIdentity"] for name in pools)

    cluster.run_pod(asked("more", pools[0]))
    waits = cluster.create_pod(asked("waits", pools[0]))
    cluster.wait_pod(waits, lambda obj: "of another pool" in json.dumps(obj))
    cluster.api.patch(f"/api/v1/nodes/{second.name}", {"metadata": {"labels": {label: "a"}}})
    assert cluster.wait_pod(waits, "Running")["spec"]["nodeName"] == second.name


@pytest.mark.parametrize("release", ["1.34", "1.35", "1.36", "1.37"])
def test_a_wrong_rule_is_found_with_the_first_pod_that_it_concerns(
    schedulers: Schedulers, fresh_node: Callable[..., Node], tmp_path: Path, release: str
) -> None:
    """And the case file reproduces it, where the program has that rule."""
    node = fresh_node(shape="2x8", version=release, kubelet=kubelet_config())
    with_agents([node])
    schedulers.start(f"--case-dir={tmp_path}", program=MISTAKEN)
    schedulers.cluster.run_pod(pod(container(2, "64Mi"), scheduler=NAME))
    processes.wait_until(lambda: list(tmp_path.iterdir()), 20, "a case file")
    (case,) = tmp_path.iterdir()
    explain = ("explain", f"--case={case}")
    found = subprocess.run([sys.executable, *MISTAKEN, *explain], check=False, capture_output=True)
    assert (found.returncode, b" reproduced: " in found.stdout) == (1, True), found
    ours = subprocess.run([sys.executable, "-m", "rte", *explain], check=False, capture_output=True)
    assert ours.returncode == 0, ours


@dataclass(frozen=True)
class Door:
    """The extender's address, and who signs the certificates of its callers."""

    url: str
    authority: Authority

    def status(self, path: str, *, user: str = "", token: str = "", body: str = "{}") -> int:
        """What is answered to a caller with a certificate of that name, or a token."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if user:
            context.load_cert_chain(*self.authority.issue("caller", user))
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", body.encode(), headers)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


def extender(cluster: Cluster, schedulers: Schedulers, folder: Path, *flags: str) -> Door:
    """A scheduler that serves the verbs, with the rights of manifests/extender."""
    made = yaml.safe_load_all(cluster.kubectl("kustomize", agents.MANIFESTS / "extender"))
    rights = [each for each in made if each["kind"] in ("ClusterRole", "ClusterRoleBinding")]
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(rights))
    authority = Authority(folder / "extender")
    authority.create()
    certificate, key = authority.issue("server", "rte-scheduler", sans="IP:127.0.0.1")
    port = processes.free_port()
    schedulers.start(
        f"--extender-listen=127.0.0.1:{port}", "--scheduler-name=nobody",
        f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
        f"--client-ca-file={authority.certificate}", *flags,
    )  # fmt: skip
    door = Door(f"https://127.0.0.1:{port}", authority)

    def is_active() -> bool:
        try:
            return door.status("/filter", user="system:kube-scheduler") == 400
        except OSError:
            return False

    processes.wait_until(is_active, 30, "the extender to answer")
    return door


def test_who_may_not_call_the_extender_is_refused(
    cluster: Cluster, schedulers: Schedulers, tmp_path: Path
) -> None:
    door = extender(cluster, schedulers, tmp_path)
    assert door.status("/bind") == 401
    assert door.status("/bind", user="system:node:n0") == 403
    assert door.status("/bind", token=cluster.token(agents.ACCOUNT, agents.NAMESPACE)) == 403
    pod = json.dumps({"spec": {"containers": []}})
    assert door.status("/explain", body=pod) == 401
    assert door.status("/explain", body=pod, token="forged") == 401
    token = cluster.token(agents.ACCOUNT, agents.NAMESPACE)
    assert door.status("/explain", body=pod, token=token) == 403
    # As docs/scheduler.md says, for an account that nobody has asked about yet.
    cluster.kubectl(
        "create", "clusterrolebinding", "explainers", "--clusterrole=rte-explain",
        f"--serviceaccount={agents.NAMESPACE}:{NAME}",
    )  # fmt: skip
    token = cluster.token(NAME, agents.NAMESPACE)
    processes.wait_until(
        lambda: door.status("/explain", body=pod, token=token) == 200, 30, "the right to explain"
    )


def test_a_pod_that_waits_in_kube_scheduler_is_woken_when_a_place_appears(
    cluster: Cluster,
    schedulers: Schedulers,
    fresh_node: Callable[..., Node],
    tmp_path: Path,
) -> None:
    """kube-scheduler does not watch reports: without the touch it would look again in minutes."""
    node = fresh_node(shape="2x8")
    with_agents([node])
    door = extender(cluster, schedulers, tmp_path, "--extender-profiles=extended")
    config = yaml.safe_load((agents.MANIFESTS / "extender/kube-scheduler.yaml").read_text())
    certificate, key = door.authority.issue("kube-scheduler", "system:kube-scheduler")
    config["extenders"][0] |= {
        "urlPrefix": door.url,
        "tlsConfig": {
            "certFile": str(certificate),
            "keyFile": str(key),
            "caFile": str(door.authority.certificate),
        },
    }
    schedulers.roles.append("extended")
    cluster.start_scheduler("extended", config=config, role="extended")
    cluster.run_pod(pod(container(1, "64Mi"), scheduler="extended"))

    node.stop("agent", grace=0)
    damage = {"metadata": {"annotations": {nrt.NODE_STATE_ANNOTATION: "{"}}}
    cluster.api.patch(f"{agents.NRT}/{node.name}", damage)
    waiting = cluster.create_pod(pod(container(2, "64Mi"), scheduler="extended"))
    refused = cluster.wait_pod(waiting, lambda obj: "malformed" in str(obj["status"]), seconds=30)
    assert WAKE_ANNOTATION not in refused["metadata"].get("annotations", {})
    agents.start(node)
    placed = cluster.wait_pod(waiting, "Running", seconds=30)
    assert WAKE_ANNOTATION in placed["metadata"]["annotations"]


def test_a_pod_reads_in_a_file_where_it_is(
    cluster: Cluster, schedulers: Schedulers, fresh_node: Callable[..., Node]
) -> None:
    """By a volume of the downward API, as the kubelet's own records have it."""
    node = fresh_node(
        shape="2x8", kubelet=kubelet_config(), devices={"example.com/gpu": [[0], [1], [1]]}
    )
    with_agents([node])
    schedulers.start()
    field = {"fieldPath": f"metadata.annotations['{PLACEMENT}']"}
    box = container(4, "512Mi", **{"example.com/gpu": 2})
    box["volumeMounts"] = [{"name": "told", "mountPath": "/told"}]
    asks = pod(
        box,
        scheduler=NAME,
        annotations={TELL_PLACEMENT: "true"},
        volumes=[
            {"name": "told", "downwardAPI": {"items": [{"path": "placement", "fieldRef": field}]}}
        ],
    )
    made = cluster.run_pod(asks)
    seen = cluster.api.wait(
        PODS,
        made["metadata"]["name"],
        lambda it: it is not None and PLACEMENT in it["metadata"].get("annotations", {}),
    )
    text = seen["metadata"]["annotations"][PLACEMENT]
    told = json.loads(text)["containers"]["c0"]
    entries = node.state_file("cpu_manager_state")["entries"]
    assert told["cpus"] == entries[made["metadata"]["uid"]]["c0"]
    assert told["zones"] == [1]
    assert told["devices"] == {"example.com/gpu": {"1": 2}}
    assert told["memory"] == {"memory": {"1": 512 << 20}}
    volume = f"pods/{made['metadata']['uid']}/volumes/kubernetes.io~downward-api/told"
    command = ["cat", f"/var/lib/kubelet/{volume}/placement"]
    # The kubelet writes such volumes anew when it next looks at the pod, within 1.5 minutes.
    processes.wait_until(lambda: node.run(command).stdout == text, 150, "the file")
