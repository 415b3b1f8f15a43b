"""A cluster: control plane, nodes, identities; one run folder holds all of it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from rte import errors
from tests.cluster import builder, networks, pods, processes
from tests.cluster.api import Api, Object
from tests.cluster.certs import Authority
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.node import Device, Node
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.machines import Shape

#: Run folders lie here. Short on purpose: a Unix socket's path has at most 107 characters.
BASE = Path(os.environ.get("RTE_RUN_DIR") or "/tmp")
PREFIX = "rte-cluster-"

#: Controllers that need networks, certificates of others or metrics we do not have. (Those of
#: clouds, which Kubernetes 1.37 no longer has, do not start without one.)
_IDLE_CONTROLLERS = (
    "node-ipam-controller", "horizontal-pod-autoscaler-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "bootstrap-signer-controller", "token-cleaner-controller",
)  # fmt: skip


#: Gangs of Kubernetes: the gate of API server and scheduler, and the API by minor version.
_GANGS_GATE = "--feature-gates=GenericWorkload=true"
_GANGS_API = {"1.35": "v1alpha1", "1.36": "v1alpha2", "1.37": "v1beta1"}


class Cluster:
    """A running cluster.

    Attributes:
        dir: its run folder.
        kubeconfig: of a cluster administrator, with the CA inside.
        api: a client with that identity.
    """

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        self.kubeconfig = folder / "kubeconfig"
        self.authority = Authority(folder / "pki")
        self._info: dict[str, Any] = {}
        self._api: Api | None = None
        self._binaries: builder.Binaries | None = None
        self._named = 0

    # -- life

    @classmethod
    def start(
        cls,
        *,
        version: str = builder.DEFAULT_VERSION,
        name: str = "",
        tied: bool = True,
        gangs: bool = False,
        api_flags: Sequence[str] = (),
    ) -> Cluster:
        """Start a control plane; nodes are added afterwards.

        Args:
            name: of the run folder; by default a random one.
            tied: the cluster ends when this process ends, whatever the way.
            gangs: serve the Workloads or PodGroups of the version (1.35 or newer, gate
                ``GenericWorkload``), to kube-schedulers as well.
            api_flags: further flags of the API server.

        Raises:
            ClusterError: not root, a tool is missing, or a program does not start.
        """
        _check_tools()
        _raise_inotify_limit()
        binaries = builder.build(version)
        folder = BASE / f"{PREFIX}{name or secrets.token_hex(3)}"
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError as error:
            raise ClusterError(
                f"{folder} exists: `python -m tests.cluster down` ends it"
            ) from error
        cluster = cls(folder)
        own = psutil.Process()
        cluster._save(
            version=binaries.version,
            tied=tied,
            gangs=gangs,
            api_flags=list(api_flags),
            owner=[own.pid, own.create_time()] if tied else None,
            token=secrets.token_hex(16),
        )
        cluster._binaries = binaries
        try:
            cluster._start_control_plane()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> Cluster:
        """A cluster that another process started.

        Raises:
            ClusterError: there is none.
        """
        cluster = cls(folder)
        try:
            cluster._info = json.loads((folder / "cluster.json").read_text())
        except (OSError, ValueError) as error:
            raise ClusterError(f"no cluster in {folder}") from error
        return cluster

    def stop(self) -> None:
        """End all processes and remove the run folder (mounts end with their namespaces)."""
        if self._api:
            self._api.close()
        processes.stop(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def info(self) -> Mapping[str, Any]:
        """Version, ports and tokens."""
        return self._info

    @property
    def version(self) -> str:
        """Kubernetes version, e.g. ``1.35.4``."""
        return str(self._info["version"])

    @property
    def binaries(self) -> builder.Binaries:
        """The programs that this cluster runs."""
        if self._binaries is None:
            self._binaries = builder.build(self.version)
        return self._binaries

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._info['port']}"

    @property
    def api(self) -> Api:
        """A client with an administrator's rights."""
        if self._api is None:
            self._api = self.client(str(self._info["token"]))
        return self._api

    def client(self, token: str) -> Api:
        """A client with the identity of a token."""
        return Api(self.server, self.authority.certificate, token)

    # -- processes

    def spawn(
        self,
        role: str,
        argv: Sequence[str | Path],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Start a process that belongs to this cluster; see :func:`processes.spawn`."""
        return processes.spawn(
            argv,
            run_dir=self.dir,
            role=role,
            log=log or self.dir / f"{role}.log",
            env=env,
            tied=bool(self._info["tied"]),
        )

    def pids(self, role: str) -> list[int]:
        """Living processes of a role, e.g. ``scheduler`` or ``n0/kubelet``."""
        return [process.pid for process in processes.find(self.dir, role)]

    def start_scheduler(
        self,
        name: str = "default-scheduler",
        *,
        config: Mapping[str, Any] | None = None,
        role: str = "scheduler",
        log: Path | None = None,
        flags: Sequence[str] = (),
    ) -> int:
        """Start a kube-scheduler; ``config`` are fields of its KubeSchedulerConfiguration."""
        path = self.dir / f"{role.replace('/', '-')}.yaml"
        body = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": name}],
            **(config or {}),
        }
        path.write_text(yaml.safe_dump(body, sort_keys=False))
        command = [self.binaries.path("kube-scheduler"), f"--config={path}", "--secure-port=0"]
        command.extend(flags)
        if self._info["gangs"]:
            command.append(_GANGS_GATE)
        return self.spawn(role, command, log=log)

    def stop_role(self, role: str, *, grace: float = 5) -> None:
        """End the processes of a role."""
        processes.stop(self.dir, role, grace=grace)

    def stop_apiserver(self) -> None:
        """Kill the API server (etcd stays)."""
        self.stop_role("apiserver", grace=0)

    def start_apiserver(self, seconds: float = 60) -> None:
        """Start the API server and wait until it is ready."""
        pki, info = self.dir / "pki", self._info
        pid = self.spawn(
            "apiserver",
            [
                self.binaries.path("kube-apiserver"),
                f"--etcd-servers=http://127.0.0.1:{info['etcd_port']}",
                f"--secure-port={info['port']}",
                "--bind-address=127.0.0.1",
                f"--tls-cert-file={pki / 'apiserver.crt'}",
                f"--tls-private-key-file={pki / 'apiserver.key'}",
                f"--client-ca-file={self.authority.certificate}",
                f"--token-auth-file={self.dir / 'tokens.csv'}",
                f"--service-account-key-file={pki / 'sa.pub'}",
                *self._gangs_flags(),
                *self._info["api_flags"],
                f"--service-account-signing-key-file={pki / 'sa.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                f"--kubelet-certificate-authority={self.authority.certificate}",
                f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
                f"--kubelet-client-key={pki / 'kubelet-client.key'}",
                "--kubelet-preferred-address-types=InternalIP",
                "--allow-privileged=true",
                "--anonymous-auth=false",
                "--endpoint-reconciler-type=none",
                "--profiling=false",
                "--v=1",
            ],
        )
        processes.wait_until(
            self._is_ready, seconds, "kube-apiserver", pid=pid, log=self.dir / "apiserver.log"
        )

    def _gangs_flags(self) -> list[str]:
        if not self._info["gangs"]:
            return []
        served = _GANGS_API[self.version.rpartition(".")[0]]
        return [_GANGS_GATE, f"--runtime-config=scheduling.k8s.io/{served}=true"]

    # -- nodes

    def add_node(
        self,
        name: str = "",
        *,
        shape: str | Path | Shape = "2x32",
        kubelet: Mapping[str, Any] | None = None,
        devices: Mapping[str, Sequence[Device]] | None = None,
        own_machine: bool = False,
        labels: Mapping[str, str] | None = None,
        version: str = "",
        images: Path | None = None,
        wait: bool = True,
        seconds: float = 60,
    ) -> Node:
        """Add a node and wait until it is Ready.

        Args:
            version: of its kubelet, the cluster's by default; at most three minors older.
            shape: a fixture's name, a folder, a Shape or text (:mod:`tests.cluster.shapes`).
            kubelet: arguments of :func:`kubelet_config`, or a whole KubeletConfiguration.
            devices: resource -> devices, each as its list of zones ([] = a topology without zones),
                None (no topology), or ``{"id": ..., "zones": ..., "unhealthy": ...}``.
            images: real containers (containerd, runc) from this OCI archive
                (:func:`tests.cluster.images.archive`) instead of records; no devices then.
            own_machine: give it a private copy of the hardware, which a test may change.
            wait: False to start several at once; call :meth:`Node.wait_ready` then.

        Raises:
            ClusterError: the kubelet does not start (the message ends with its errors), or the API
                server does not support its version.
        """
        node = Node(self, name or self._new_name())
        if node.dir.exists():
            raise ClusterError(f"node {node.name} exists already")
        release = builder.kubelet_version(version or self.version, self.version)
        settings = dict(kubelet or {})
        config = settings if "kind" in settings else kubelet_config(**settings)
        try:
            node.create(
                shape=shape, config=config, devices=devices, own_machine=own_machine,
                labels=labels, version=release, archive=images,
            )  # fmt: skip
            if wait:
                node.wait_ready(seconds)
        except BaseException:
            node.remove()
            raise
        return node

    def _new_name(self) -> str:
        """A name is given once: the garbage collector may be busy with the last one's objects."""
        while True:
            name = f"n{self._named}"
            self._named += 1
            if not (self.dir / "n" / name).exists():
                return name

    def node(self, name: str) -> Node:
        """A node by name."""
        node = Node(self, name)
        if not node.dir.exists():
            raise ClusterError(f"no node {name}")
        return node

    def nodes(self) -> list[Node]:
        """All nodes."""
        folder = self.dir / "n"
        return (
            [Node(self, path.name) for path in sorted(folder.iterdir())] if folder.exists() else []
        )

    # -- pods

    def create_pod(self, pod: Object) -> Object:
        """Create a pod; the object as the API server returns it."""
        return self.api.create(pods.collection(pod), pod)

    def wait_pod(
        self, pod: Object, done: str | Callable[[Object | None], Any], *, seconds: float = 90
    ) -> Object:
        """Wait by watch until a pod is in a phase, or until ``done(pod or None)``.

        Raises:
            ClusterError: not in time, or (waiting for a phase) the pod reached another final one.
        """

        def reached(obj: Object | None) -> bool:
            if callable(done):
                return bool(done(obj))
            phase = obj["status"].get("phase") if obj else None
            if phase != done and (obj is None or phase in {"Failed", "Succeeded"}):
                status = (obj or {}).get("status", {})
                why = f"{status.get('reason', '')}: {status.get('message', '')}"
                name = pod["metadata"]["name"]
                raise ClusterError(f"pod {name} is {phase or 'gone'}, not {done}; {why}")
            return phase == done

        result = self.api.wait(
            pods.collection(pod), pod["metadata"]["name"], reached, seconds=seconds
        )
        return result or {}

    def run_pod(self, pod: Object, phase: str = "Running", *, seconds: float = 90) -> Object:
        """Create a pod and wait for a phase."""
        return self.wait_pod(self.create_pod(pod), phase, seconds=seconds)

    def delete_pod(self, pod: Object, *, grace: int | None = 0, seconds: float = 90) -> None:
        """Delete a pod and wait until the API shows it no more."""
        self.api.delete(pods.path(pod), grace=grace)
        self.wait_pod(pod, lambda obj: obj is None, seconds=seconds)

    # -- identities and manifests

    def kubectl(self, *args: str | Path, check: bool = True, text: str | None = None) -> str:
        """Run kubectl in the project's folder as an administrator; returns its standard output.

        Raises:
            ClusterError: it failed (unless ``check`` is False).
        """
        command = [self.binaries.path("kubectl"), f"--kubeconfig={self.kubeconfig}", *args]
        done = subprocess.run(
            [str(word) for word in command],
            cwd=Path(__file__).parents[2],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            words = " ".join(str(word) for word in args)
            raise ClusterError(f"kubectl {words}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: Path) -> None:
        """Apply a kustomization folder or a manifest file."""
        self.kubectl("apply", "--server-side", "-k" if manifest.is_dir() else "-f", manifest)

    def define(self, crd: Object) -> str:
        """Apply a CustomResourceDefinition; its name, once everybody finds its objects."""
        name, group = str(crd["metadata"]["name"]), crd["spec"]["group"]
        self.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump(crd))
        find = ("api-resources", "--cached=false", "-o", "name", f"--api-group={group}")
        processes.wait_until(lambda: name in self.kubectl(*find).split(), 60, name, every=0.3)
        return name

    def ensure_namespace(self, name: str) -> None:
        """Make a namespace and wait for its default service account."""
        if self.api.find(f"/api/v1/namespaces/{name}") is None:
            self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        self.api.wait(path, "default", lambda obj: obj is not None)

    def token(
        self, account: str, namespace: str = "default", *, pod: Object | None = None,
        node: str | None = None, seconds: int = 3600,
    ) -> str:  # fmt: skip
        """Mint a service-account token, bound to a pod (as a pod's own is) or to a node.

        Both carry the node's name as a claim.
        """
        spec: Object = {"expirationSeconds": max(600, seconds)}
        bound, kind = (pod, "Pod") if pod else (None, "Node")
        if node:
            bound = self.api.get(f"/api/v1/nodes/{node}")
        if bound:
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": kind,
                "name": bound["metadata"]["name"],
                "uid": bound["metadata"]["uid"],
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.api.create(path, {"spec": spec})
        return str(answer["status"]["token"])

    def write_kubeconfig(self, path: Path, user: Mapping[str, str]) -> Path:
        """A kubeconfig for this cluster; ``user`` as in the format (token, tokenFile, ...)."""
        authority = base64.b64encode(self.authority.certificate.read_bytes()).decode()
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {"server": self.server, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "user", "user": dict(user)}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
            "current-context": "testbed",
        }
        partial = path.with_name(path.name + ".partial")
        partial.touch(mode=0o600)
        partial.write_text(yaml.safe_dump(body, sort_keys=False))
        partial.replace(path)
        return path

    # -- starting

    def _start_control_plane(self) -> None:
        ports = {name: processes.free_port() for name in ("port", "etcd_port", "peer_port")}
        self._save(**ports)
        (self.dir / "shapes").mkdir()
        (self.dir / "tokens.csv").write_text(
            f'{self._info["token"]},admin,admin,"system:masters"\n'
        )
        client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd_port", "peer_port"))
        self.spawn(
            "etcd",
            [
                self.binaries.path("etcd"),
                f"--data-dir={self.dir / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
            ],
        )
        self.authority.create()
        sans = "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
        self.authority.issue("apiserver", "kube-apiserver", sans=sans)
        self.authority.issue("kubelet-client", "kube-apiserver", "system:masters")
        self.write_kubeconfig(self.kubeconfig, {"token": str(self._info["token"])})
        self.start_apiserver()
        idle = ",".join(f"-{name}" for name in _IDLE_CONTROLLERS)
        self.spawn(
            "controller-manager",
            [
                self.binaries.path("kube-controller-manager"),
                f"--kubeconfig={self.kubeconfig}",
                f"--service-account-private-key-file={self.dir / 'pki/sa.key'}",
                f"--root-ca-file={self.authority.certificate}",
                "--leader-elect=false",
                f"--controllers=*,{idle}",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                "--node-monitor-period=2s",
                "--secure-port=0",
                "--v=1",
            ],
        )
        path = "/api/v1/namespaces/default/serviceaccounts"
        try:
            self.api.wait(path, "default", lambda account: account is not None, seconds=60)
        except ClusterError as error:
            log = self.dir / "controller-manager.log"
            raise ClusterError(f"kube-controller-manager\n{processes.tail(log)}") from error

    def _is_ready(self) -> bool:
        try:
            return self.api.request("GET", "/readyz", timeout=5) == "ok"
        except errors.KubeError:
            return False

    def _save(self, **values: Any) -> None:
        self._info |= values
        path = self.dir / "cluster.json"
        partial = path.with_name("cluster.partial")
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(self._info))
        partial.replace(path)


def clusters() -> Iterator[Cluster]:
    """Every run folder on this machine, running or left behind."""
    for path in sorted(BASE.glob(f"{PREFIX}*")):
        try:
            yield Cluster.attach(path)
        except ClusterError:
            yield Cluster(path)


def sweep() -> list[str]:
    """Remove what ended sessions left behind; returns one line for each piece.

    A cluster whose process lives is left alone, so sessions may run side by side.
    """
    left = []
    for cluster in clusters():
        owner = cluster.info.get("owner")
        if cluster.info.get("tied") and owner and not _lives(*owner):
            cluster.stop()
            left.append(f"cluster {cluster.dir}")
    for run_dir, processes_of_run in processes.runs().items():
        if run_dir.parent == BASE and not run_dir.exists():
            processes.stop(run_dir)
            left.append(f"{processes_of_run} processes of {run_dir}")
    left += networks.sweep(BASE, PREFIX)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = line.split()[1]
        if target.startswith(f"{BASE}/{PREFIX}"):
            left.append(f"mount {target}")
            subprocess.run(["umount", "--lazy", target], check=False)
    return left


def _lives(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 1
    except psutil.NoSuchProcess:
        return False


def _raise_inotify_limit(wanted: int = 1024) -> None:
    """A kubelet and its companions take eleven inotify instances; the kernel grants a user 128.

    The limit is the host's and stays raised: other clusters on it may need it too.
    """
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < wanted:
        try:
            limit.write_text(str(wanted))
        except OSError as error:
            processes.note(f"{limit} stays below {wanted}, enough for some ten nodes: {error}")


def _check_tools() -> None:
    if os.geteuid():
        raise ClusterError("the test bed needs root: every node has a mount namespace of its own")
    for tool, package in (
        ("unshare", "util-linux"), ("nsenter", "util-linux"), ("setpriv", "util-linux"),
        ("mount", "mount"), ("openssl", "openssl"),
    ):  # fmt: skip
        if shutil.which(tool) is None:
            raise ClusterError(f"{tool} is not installed: apt-get install {package}")
