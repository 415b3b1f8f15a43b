"""A kubelet as files and a podresources source, under the test's control."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from rte import errors
from rte.kubelet import PLUGIN_DIR
from rte.model import bits
from rte.model.kubelet import Allocatable, ListedPod
from tests.checkpoints import sealed

FIXTURES = Path(__file__).parents[3] / "fixtures/sysfs"


@dataclass
class FakeKubelet:
    """Static CPU manager, no memory manager; writes its files as the kubelet does, by rename."""

    root: Path
    cpus: int
    listed: list[ListedPod] = field(default_factory=list)
    entries: dict[str, dict[str, int]] = field(default_factory=dict)
    admitted: list[str] = field(default_factory=list)
    is_gone: bool = False
    up: bool = True
    lists: int = 0
    answers: int | None = None  #: so many more lists are answered; None: all

    def __post_init__(self) -> None:
        (self.root / PLUGIN_DIR).mkdir(parents=True)
        (self.root / "pod-resources").mkdir()

    @property
    def socket(self) -> Path:
        return self.root / "pod-resources/kubelet.sock"

    def start(self) -> None:
        """(Re)start: the socket is a new one."""
        self.up = True
        self.socket.unlink(missing_ok=True)
        self.socket.touch()
        self.write_cpus()
        self.write_admitted()

    # What the kubelet writes

    def write(self, name: str, text: str) -> None:
        temporary = self.root / f".{name}.tmp"
        temporary.write_text(text)
        temporary.replace(self.root / name)

    def cpu_state(self, default: int | None = None) -> str:
        if default is None:
            default = self.cpus
            for containers in self.entries.values():
                for held in containers.values():
                    default &= ~held
        entries = {
            uid: {name: bits.format_list(held) for name, held in containers.items()}
            for uid, containers in self.entries.items()
        }
        return json.dumps(
            sealed(
                {
                    "policyName": "static",
                    "defaultCpuSet": bits.format_list(default),
                    "entries": entries,
                }
            )
        )

    def write_cpus(self, default: int | None = None) -> None:
        self.write("cpu_manager_state", self.cpu_state(default))

    def write_admitted(self) -> None:
        pods = {uid: {"ContainerResources": {"c": {}}} for uid in self.admitted}
        data = json.dumps({"entries": pods})
        self.write("allocated_pods_state", json.dumps(sealed({"data": data})))

    def write_devices(self, *resources: str) -> None:
        """Device plugins are registered, none of which has a device yet."""
        data = {"PodDeviceEntries": None, "RegisteredDevices": {name: [] for name in resources}}
        name = f"{PLUGIN_DIR}/kubelet_internal_checkpoint"
        temporary = self.root / f"{name}.tmp"
        temporary.write_text(json.dumps(sealed({"Data": data})))
        temporary.replace(self.root / name)

    def admit(self, uid: str, cpus: int) -> None:
        """The whole of an admission."""
        self.entries[uid] = {"c": cpus}
        self.write_cpus()
        self.listed.append(ListedPod(namespace="default", name=uid))
        self.admitted.append(uid)
        self.write_admitted()

    # Podresources

    def _check(self, method: str) -> None:
        if self.is_gone:
            raise errors.KubeletGoneError(f"podresources {method}: no answer")
        if not self.up:
            raise errors.KubeletError(f"podresources {method}: no answer")

    async def list(self) -> tuple[ListedPod, ...]:
        self.lists += 1
        self._check("List")
        if self.answers is not None:
            if not self.answers:
                raise errors.KubeletError("podresources List: no answer")
            self.answers -= 1
        return tuple(self.listed)

    async def allocatable(self) -> Allocatable | None:
        self._check("GetAllocatableResources")
        return Allocatable(cpus=self.cpus & ~1)
