"""Kubelets that run nowhere: their configuration, and what their nodes have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import accounting, errors, placement
from rte.kubelet import config, config_document
from rte.model import bits
from rte.model.node import DevicePool
from rte.model.quantity import ResourceList, hugepage_resource
from rte.placement.kubelet import releases
from rte.sim.kubelet_document import kubelet_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.library.machines import NamedMachine
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState

POLICY, SCOPE = "single-numa-node", "container"
_EXAMPLE = "e.g. example.com/gpu=0/0/1/0+1/none"

#: All keys of ``KubeletConfiguration`` v1beta1 up to Kubernetes 1.37 (k8s.io/kubelet/config).
_KEY_TEXT = """
    address allowedUnsafeSysctls apiVersion authentication authorization cgroupDriver cgroupRoot
    cgroupsPerQOS clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy
    containerLogMaxFiles containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval
    containerRuntimeEndpoint contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy
    cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff defaultPodSysctls
    enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler
    enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler
    enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS evictionHard
    evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod
    evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates fileCheckFrequency
    hairpinMode healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent
    imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit
    iptablesMasqueradeBit kernelMemcgNotification kind kubeAPIBurst kubeAPIQPS kubeReserved
    kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging
    makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy
    memoryReservationPolicy memorySwap memoryThrottlingFactor mergeDefaultEvictionSettings
    nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency
    nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
    preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved
    readOnlyPort registerNode registerWithTaints registryBurst registryPullQPS reservedMemory
    reservedSystemCPUs resolvConf rotateCertificates runOnce runtimeRequestTimeout
    seccompDefault serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion
    shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods
    singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader
    streamingConnectionIdleTimeout syncFrequency systemCgroups systemReserved
    systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion
    tlsPrivateKeyFile topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope
    tracing userNamespaces volumePluginDir volumeStatsAggPeriod
"""
_KEYS = frozenset(_KEY_TEXT.split())


@dataclass(frozen=True, kw_only=True)
class KubeletChoice:
    """The kubelet that a machine is given where none was found with it.

    Attributes:
        policy: topology-manager policy, in place of the configuration's; empty: that one.
        scope: topology-manager scope, likewise.
        configuration: a KubeletConfiguration or its file; None: static CPU manager, Static memory
            manager (on up to 16 zones), one CPU and 512 MiB reserved.
        version: of the kubelet, empty: the newest.
        devices: resource -> devices.
        names: what these are called in messages, where not as here.
    """

    policy: str = ""
    scope: str = ""
    configuration: Mapping[str, object] | Path | None = None
    version: str = ""
    devices: Mapping[str, DevicePool] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def state(self, found: NamedMachine) -> NodeState:
        """Of the kubelet that was found with the machine, else of an idle one as chosen.

        Raises:
            errors.RteError: there is one and another was chosen, or it would not start.
        """
        if self.version and releases.known(self.version) is None:
            raise errors.UsageError(
                f"{self._name('version')} {self.version}: {releases.why_unknown(self.version)}"
            )
        state = found.reading.state
        if state is not None:
            for attribute in ("policy", "scope", "devices", "configuration"):
                if getattr(self, attribute):
                    raise errors.UsageError(
                        f"{found.name} has a kubelet of its own: leave {self._name(attribute)} out"
                    )
            return replace(
                state, kubelet_version=self.version or state.kubelet_version or releases.NEWEST
            )
        topology = accounting.kubelet_topology(found.reading.machine)
        zones = topology.zone_mask
        for resource, pool in self.devices.items():
            missing = bits.of(
                zone for wanted in pool.by_zones for zone in bits.members(wanted or 0)
            )
            if missing & ~zones:
                raise errors.UsageError(
                    f"{self._name('devices')} {resource}: {found.name} has no zone "
                    f"{bits.format_list(missing)}"
                )
        chosen = self._config(found.reading.machine, topology.cpus[0].cpu)
        return placement.initial_state(
            topology, chosen, self.devices, self.version or releases.NEWEST
        )

    def _name(self, attribute: str) -> str:
        return self.names.get(attribute, attribute)

    def _config(self, machine: Machine, first_cpu: int) -> KubeletConfig:
        where, given = self._name("configuration"), self.configuration
        if given is None:
            document = kubelet_document(
                machine,
                policy=self.policy or POLICY,
                scope=self.scope or SCOPE,
                reserved_cpus=str(first_cpu),
            )
            return config.effective(document, memory_bytes=machine.memory_bytes, where=where)
        if isinstance(given, Path):
            where, given = f"{where} {given}", config_document.load(given)
        for key in sorted(given.keys() - _KEYS):
            raise errors.UsageError(
                f"{where}: a KubeletConfiguration has no key {key!r}{errors.meant(key, _KEYS)}"
            )
        document = dict(given)
        if self.policy:
            document["topologyManagerPolicy"] = self.policy
        if self.scope:
            document["topologyManagerScope"] = self.scope
        return config.from_document(document, memory_bytes=machine.memory_bytes, where=where)


def device_pool(what: str, zones: str) -> DevicePool:
    """Devices by their zones, one after the other: ``0/0/1/0+1/none``.

    Raises:
        errors.UsageError: it is written otherwise; the message begins with ``what``.
    """
    sets = tuple(_zone_set(part, what) for part in zones.split("/"))
    width = len(str(len(sets)))
    return DevicePool(
        ids=tuple(f"dev{number:0{width}}" for number in range(len(sets))),
        zones=sets,
        healthy=(1 << len(sets)) - 1,
    )


def _zone_set(part: str, what: str) -> int | None:
    if part == "none":
        return None
    numbers = part.split("+")
    if not all(n.isascii() and n.isdigit() and len(n) <= 4 for n in numbers):
        raise errors.UsageError(f"{what}: {part!r} is no set of zones, {_EXAMPLE}")
    return bits.of(int(n) for n in numbers)


def parse_devices(text: str, what: str) -> tuple[str, DevicePool]:
    """A resource and its devices: ``RESOURCE=ZONES``.

    Raises:
        errors.UsageError: it is written otherwise; the message begins with ``what``.
    """
    resource, _, zones = text.partition("=")
    if "/" not in resource or not zones:
        raise errors.UsageError(f"{what} {text}: expected RESOURCE=ZONES, {_EXAMPLE}")
    return resource, device_pool(f"{what} {text}", zones)


def allocatable(state: NodeState) -> ResourceList:
    """What the kubelet would register: totals over all zones, less what is reserved (millicores,
    bytes, units).
    """
    total: Counter[str] = Counter()
    for zone in state.topology.zones:
        total["memory"] += zone.memory_bytes
        for size, count in zone.hugepages.items():
            total[hugepage_resource(size)] += size * count
            total["memory"] -= size * count
    total["cpu"] = 1000 * len(state.topology.cpus) - state.config.cpu_reservation_milli
    for resource, amount in state.config.node_reserved.items():
        if resource != "cpu":
            total[resource] -= amount
    for resource, pool in state.devices.items():
        total[resource] = pool.healthy.bit_count()
    total["pods"] = state.config.max_pods
    total["ephemeral-storage"] = 1 << 40
    return ResourceList(dict(total))


def asked_by(state: NodeState, uid: str) -> dict[str, dict[str, int]]:
    """Container -> the least that it asks for, as it holds so much (CPUs, bytes, devices)."""
    out = {}
    for container, holding in state.holdings.get(uid, {}).items():
        total: Counter[str] = Counter()
        if holding.cpus:
            total["cpu"] = holding.cpus.bit_count()
            if state.config.memory_policy == "None":
                # Who has CPUs of its own limits memory too; only how much is not known.
                total["memory"] = 1
        for block in holding.memory:
            total[block.resource] += block.size
        for resource, mask in holding.devices.items():
            total[resource] = mask.bit_count()
        out[container] = dict(total)
    return out
