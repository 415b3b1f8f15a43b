"""One node: a real kubelet in a mount namespace that shows it simulated hardware."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster import builder, images, networks, pods, processes, shapes
from tests.cluster import kubelet_config as kubelet_configs
from tests.cluster.api import Api
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.machines import Shape

ENTER = Path(__file__).parent / "enter.sh"

#: Of one device: its zones, or None for a device without topology; or the full description.
Device = list[int] | None | dict[str, Any]


class Node:
    """A node of a cluster.

    Attributes:
        name: node name.
        dir: folder of the node; :attr:`root` is the kubelet's directory as seen from outside.
        machine: folder ``{sys,proc}`` of its hardware.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.dir = cluster.dir / "n" / name
        self.root = self.dir / "root"

    # -- paths

    @property
    def spec(self) -> dict[str, Any]:
        """What the node was made from."""
        return json.loads((self.dir / "node.json").read_text())

    @property
    def machine(self) -> Path:
        """Folder ``{sys,proc}`` of the hardware, for ``--sysfs-root`` and ``--procfs-root``."""
        return Path(self.spec["machine"])

    @property
    def podresources_socket(self) -> Path:
        """The kubelet's podresources socket, from outside the namespace."""
        return self.root / "pod-resources/kubelet.sock"

    @property
    def config_file(self) -> Path:
        """The kubelet's configuration file."""
        return self.dir / "kubelet.yaml"

    @property
    def kubelet_log(self) -> Path:
        """The kubelet's log."""
        return self.dir / "kubelet.log"

    @property
    def version(self) -> str:
        """Version of the kubelet, e.g. ``1.35.4``."""
        return str(self.spec["version"])

    @property
    def port(self) -> int:
        """The kubelet's HTTPS port on 127.0.0.1."""
        return int(self.spec["port"])

    # -- life

    def create(
        self,
        *,
        shape: str | Path | Shape,
        config: Mapping[str, Any],
        devices: Mapping[str, Sequence[Device]] | None,
        own_machine: bool,
        labels: Mapping[str, str] | None,
        version: str,
        archive: Path | None = None,
    ) -> None:
        """Write the node's files and start namespace, runtime and kubelet (not yet Ready)."""
        self.root.mkdir(parents=True)
        for folder in (self.root / "device-plugins", self.dir / "static", self.dir / "pki"):
            folder.mkdir()
        machine = shapes.materialise(shape, self.cluster.dir / "shapes")
        if own_machine:
            shutil.copytree(machine, self.dir / "machine", symlinks=True)
            machine = self.dir / "machine"
        shapes.complete(machine, self.dir)
        port = processes.free_port()
        self._save_spec(
            machine=str(machine), port=port, labels=dict(labels or {}), version=version,
            containers=archive is not None,
        )  # fmt: skip
        authority = self.cluster.authority
        authority.issue(
            "kubelet",
            f"system:node:{self.name}",
            "system:nodes",
            f"IP:127.0.0.1,DNS:{self.name}",
            folder=self.dir / "pki",
        )
        self.cluster.write_kubeconfig(
            self.dir / "kubeconfig",
            {
                "client-certificate": str(self.dir / "pki/kubelet.crt"),
                "client-key": str(self.dir / "pki/kubelet.key"),
            },
        )
        self._spawn("namespace", ["unshare", "--mount", "sh", ENTER, machine, self.dir])
        if devices:
            self._write_devices(devices)
        self.configure(config)
        processes.wait_until(
            (self.dir / "entered").exists, 10, f"namespace of {self.name}",
            log=self.dir / "namespace.log",
        )  # fmt: skip
        if archive is None:
            self._start_runtime()
        else:
            self._start_containerd(archive)
        self.start_kubelet()

    def _save_spec(self, **spec: Any) -> None:
        (self.dir / "node.json").write_text(json.dumps(spec))

    def configure(self, config: Mapping[str, Any]) -> None:
        """Write the kubelet's configuration (takes effect when it is started next)."""
        done = kubelet_configs.complete(config, shapes.memory_zones(self.machine))
        done |= {
            "containerRuntimeEndpoint": f"unix://{self.dir}/cri.sock",
            "port": self.port,
            "staticPodPath": str(self.dir / "static"),
            "podLogsDir": str(self.dir / "pod-logs"),
            "volumePluginDir": str(self.dir / "volume-plugins"),
        }
        if not self.spec["containers"]:  # else as kubeadm leaves it: it signs one itself
            done |= {
                "tlsCertFile": str(self.dir / "pki/kubelet.crt"),
                "tlsPrivateKeyFile": str(self.dir / "pki/kubelet.key"),
            }
        done["authentication"] = {
            **done["authentication"],
            "x509": {"clientCAFile": str(self.cluster.authority.certificate)},
        }
        self.config_file.write_text(yaml.safe_dump(done, sort_keys=False))

    @property
    def config(self) -> dict[str, Any]:
        """The kubelet's configuration as written."""
        return yaml.safe_load(self.config_file.read_text())

    def start_kubelet(self) -> None:
        """Start the kubelet; see :meth:`wait_ready`."""
        labels = self.spec["labels"]
        command = [
            builder.build(self.version, [builder.KUBELET]).path(builder.KUBELET),
            f"--config={self.config_file}",
            f"--kubeconfig={self.dir / 'kubeconfig'}",
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={'/var/lib/kubelet' if self.spec['containers'] else self.dir}/pki",
            f"--hostname-override={self.name}",
            "--node-ip=127.0.0.1",
            "--v=2",
        ]
        if labels:
            command.append("--node-labels=" + ",".join(f"{k}={v}" for k, v in labels.items()))
        self._spawn("kubelet", [*self.enter(), *command])

    def stop_kubelet(self) -> None:
        """Kill the kubelet; runtime and containers stay, as on a real node."""
        processes.stop(self.cluster.dir, f"{self.name}/kubelet")

    def restart_kubelet(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        clean: bool = False,
        version: str = "",
        seconds: float = 90,
    ) -> None:
        """Restart the kubelet, with another configuration if given, and wait until it is Ready.

        Args:
            clean: remove its state files first (needed when a policy or the hardware changes).
            version: of the kubelet from now on, an upgrade or downgrade in place.
        """
        self.stop_kubelet()
        if version:
            wanted = builder.kubelet_version(version, self.cluster.version)
            self._save_spec(**self.spec | {"version": wanted})
        if clean:
            for name in ("cpu_manager_state", "memory_manager_state"):
                (self.root / name).unlink(missing_ok=True)
        if config is not None:
            self.configure(config)
        before = self.heartbeat()
        self.start_kubelet()
        self.wait_ready(seconds, after=before)

    def heartbeat(self) -> str:
        """Time of the last Ready condition that the kubelet wrote, ``""`` if none."""
        node = self.cluster.api.find(f"/api/v1/nodes/{self.name}") or {}
        return _ready(node).get("lastHeartbeatTime", "")

    def wait_ready(self, seconds: float = 90, *, after: str = "", settled: bool = True) -> None:
        """Wait until the kubelet has reported Ready and nothing keeps pods away.

        Args:
            after: the report must be younger than this (a heartbeat from before a restart).
            settled: also wait for its first housekeeping, some 2 s later. Until then a kubelet does
                not rule out that a pod it refuses still runs, and tells of the refusal 10 s late
                (status manager, PodCouldHaveRunningContainers).

        Raises:
            ClusterError: with the last errors of the kubelet's log.
        """

        def ready(node: Object | None) -> bool:
            if node is None:
                return False
            condition = _ready(node)
            fresh = not after or condition.get("lastHeartbeatTime", "") > after
            taints = [t["key"] for t in node["spec"].get("taints", [])]
            return (
                condition.get("status") == "True"
                and fresh
                and "node.kubernetes.io/not-ready" not in taints
                and all(name in node["status"].get("allocatable", {}) for name in self.devices())
            )

        deadline = time.monotonic() + seconds
        while True:
            # In slices, so that a kubelet that has given up is noticed.
            try:
                self.cluster.api.wait("/api/v1/nodes", self.name, ready, seconds=1)
                break
            except ClusterError as error:
                dead = not self.cluster.pids(f"{self.name}/kubelet")
                if not dead and time.monotonic() < deadline:
                    continue
                why = "its kubelet has ended" if dead else f"not Ready within {seconds:g} s"
                lines = processes.tail(self.kubelet_log)
                raise ClusterError(f"node {self.name}: {why}\n{lines}") from error
        self._set_address()
        if settled:
            # Housekeeping sets these gauges; they do not exist before.
            processes.wait_until(
                lambda: "\nkubelet_desired_pods{" in self.kubelet_get("/metrics"),
                seconds,
                f"first housekeeping of {self.name}",
                every=0.2,
            )

    def _set_address(self) -> None:
        """Tell where the kubelet listens; it never reports a loopback address itself."""
        path = f"/api/v1/nodes/{self.name}"
        addresses = [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": self.name},
        ]
        if self.cluster.api.get(path)["status"].get("addresses") != addresses:
            self.cluster.api.patch(f"{path}/status", {"status": {"addresses": addresses}})

    def kubelet_get(self, path: str) -> Any:
        """Read from the kubelet's own API: ``/metrics`` (text), ``/configz``, ``/pods`` (JSON).

        Raises:
            rte.errors.KubeError: it is not there, or refuses.
        """
        authority, name = self.cluster.authority.certificate, ""
        if self.spec["containers"]:  # it signs its certificate itself
            authority, name = self.root / "pki/kubelet.crt", self.name
        server, token = f"https://127.0.0.1:{self.port}", str(self.cluster.info["token"])
        with closing(Api(server, authority, token, name=name)) as client:
            return client.get(path)

    def remove(self) -> None:
        """End every process of the node, and delete its objects and its folder."""
        processes.stop(self.cluster.dir, self.name)
        api = self.cluster.api
        bound = api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")["items"]
        for pod in bound:
            api.delete(pods.path(pod), grace=0)
        api.delete(f"/api/v1/nodes/{self.name}")
        shutil.rmtree(self.dir)

    # -- inside

    def enter(self) -> list[str]:
        """The command prefix that runs a command in the node's mount namespace (in our cwd)."""
        found: list[int] = []

        def look() -> bool:
            # Between two programs of one process (exec) its environment cannot be seen.
            found[:] = self.cluster.pids(f"{self.name}/namespace")
            return bool(found)

        processes.wait_until(look, 2, f"node {self.name} does not run")
        (holder, *_) = found
        return ["nsenter", f"--mount=/proc/{holder}/ns/mnt", f"--wd={Path.cwd()}", "--"]

    def run(self, argv: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in the node's namespace; ``options`` are those of subprocess.run."""
        settings = {"capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run(
            [*self.enter(), *(str(word) for word in argv)], check=False, **settings
        )

    def spawn(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> int:
        """Start a daemon in the node's namespace; log: ``dir/<name>.log``; returns its pid."""
        return self._spawn(name, [*self.enter(), *argv], env)

    def stop(self, name: str, *, grace: float = 10) -> None:
        """End what :meth:`spawn` started: SIGTERM, then SIGKILL after ``grace`` seconds."""
        processes.stop(self.cluster.dir, f"{self.name}/{name}", grace=grace)

    def log(self, name: str) -> str:
        """What a daemon of the node has written."""
        return (self.dir / f"{name}.log").read_text(errors="replace")

    # -- what the kubelet holds

    def state_file(self, name: str) -> dict[str, Any]:
        """A JSON file of the kubelet's directory (``cpu_manager_state``); {} if there is none."""
        path = self.root / name
        return json.loads(path.read_text()) if path.exists() else {}

    def force_admission(self, seconds: float = 60) -> None:
        """Make the kubelet admit a pod that holds nothing: it drops what ended pods still hold."""
        pod = self.cluster.create_pod(pods.pod(node=self.name, name=f"probe-{self.name}"))
        self.cluster.wait_pod(
            pod, lambda p: p is not None and "startTime" in p["status"], seconds=seconds
        )
        self.cluster.delete_pod(pod)

    def true_state(self) -> dict[str, dict[str, Any]]:
        """State files as the kubelet's next admission leaves them: what it really holds.

        Returns:
            ``cpu_manager_state``, ``memory_manager_state``, ``kubelet_internal_checkpoint``.
        """
        self.force_admission()
        names = ("cpu_manager_state", "memory_manager_state")
        state = {name: self.state_file(name) for name in names}
        state["kubelet_internal_checkpoint"] = self.state_file(
            "device-plugins/kubelet_internal_checkpoint"
        )
        return state

    # -- devices and hardware

    def set_devices(self, devices: Mapping[str, Sequence[Device]]) -> None:
        """Change the simulated devices: all of them, by resource. See :func:`device_list`."""
        self._write_devices(devices)
        for process in processes.find(self.cluster.dir, f"{self.name}/runtime"):
            process.send_signal(signal.SIGHUP)

    def set_health(self, resource: str, device: str, *, healthy: bool) -> None:
        """Let a device turn unhealthy, or heal; returns when the node's status shows it."""
        devices = self.devices()
        for item in devices[resource]:
            if item["id"] == device:
                item["unhealthy"] = not healthy
        count = str(sum(not item.get("unhealthy") for item in devices[resource]))
        self.set_devices(devices)
        self.cluster.api.wait(
            "/api/v1/nodes",
            self.name,
            lambda node: node is not None and node["status"]["allocatable"].get(resource) == count,
            what=f"{count} healthy {resource} on {self.name}",
        )

    def _write_devices(self, devices: Mapping[str, Sequence[Device]]) -> None:
        text = json.dumps({name: device_list(name, items) for name, items in devices.items()})
        partial = self.dir / "devices.partial"
        partial.write_text(text)
        partial.replace(self.dir / "devices.json")

    def devices(self) -> dict[str, list[dict[str, Any]]]:
        """The simulated devices by resource: id, zones (null: no topology), unhealthy."""
        path = self.dir / "devices.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _start_runtime(self) -> None:
        pid = self._spawn(
            "runtime",
            [
                self.cluster.binaries.fakecri,
                f"-socket={self.dir / 'cri.sock'}",
                f"-devices={self.dir / 'devices.json'}",
                f"-plugin-dir={self.root / 'device-plugins'}",
            ],
        )
        processes.wait_until(
            (self.dir / "cri.sock").exists, 10, f"runtime of {self.name}",
            pid=pid, log=self.dir / "runtime.log",
        )  # fmt: skip

    def _start_containerd(self, archive: Path) -> None:
        """Real containers, in the node's namespace so that their mounts come from there."""
        config = self.dir / "containerd.toml"
        config.write_text(images.containerd_config(self.dir))
        networks.prepare(self.dir, self.port)
        self.start_containerd()
        done = self.run(images.import_command(self.dir, archive), timeout=120)
        if done.returncode:
            raise ClusterError(f"node {self.name}: the images are not taken: {done.stderr.strip()}")

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers."""
        programs = builder.containerd()
        # It finds its shim by PATH.
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        pid = self.spawn(
            "containerd",
            ["containerd", "--config", self.dir / "containerd.toml"],
            {**os.environ, "PATH": path},
        )
        version = [programs / "ctr", "-a", self.dir / "cri.sock", "version"]
        processes.wait_until(
            lambda: self.run(version).returncode == 0, 20, f"containerd of {self.name}",
            pid=pid, log=self.dir / "containerd.log", every=0.2,
        )  # fmt: skip

    def _spawn(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> int:
        return self.cluster.spawn(
            f"{self.name}/{name}", argv, log=self.dir / f"{name}.log", env=env
        )


def device_list(resource: str, items: Sequence[Device]) -> list[dict[str, Any]]:
    """Full descriptions of devices: a list of zones, or None (no topology), names one device."""
    stem = resource.rpartition("/")[2]
    return [
        item if isinstance(item, dict) else {"id": f"{stem}{number}", "zones": item}
        for number, item in enumerate(items)
    ]


def _ready(node: Object) -> dict[str, str]:
    conditions = (node.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == "Ready"), {})
