"""The rules of one kubelet: its configuration, read as its release does.

Sources: policy_options.go of the CPU and topology manager, pkg/features/kube_features.go. What
differs between releases is in ``releases`` and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.kubelet import merge, outcome, releases
from rte.placement.kubelet.releases import (
    ALIGN_BY_SOCKET,
    DISTRIBUTE_ACROSS_CORES,
    DISTRIBUTE_ACROSS_NUMA,
    FULL_PCPUS_ONLY,
    PREFER_CLOSEST,
    PREFER_UNCORE,
    STRICT_RESERVATION,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.node import KubeletConfig
    from rte.placement.kubelet.releases import Release

DEFAULT_MAX_ZONES = 8
_DEFAULT_GATES = {
    "CPUManagerPolicyAlphaOptions": False,
    "CPUManagerPolicyBetaOptions": True,
    "TopologyManagerPolicyAlphaOptions": False,
    "TopologyManagerPolicyBetaOptions": True,
    "PodLevelResources": True,
    "PodLevelResourceManagers": False,
    "PodLevelResourcesFixKubeletQOSClass": True,
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class StartError(Exception):
    """A kubelet with this configuration ends at once; the text is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CPUOptions:
    """Options of the static CPU manager policy, and how the release understands them.

    Attributes:
        distributes_in_socket: the distributed picker heeds align-by-socket.
        lowers_share: it lowers the even share to what each chosen zone has.
        keeps_held_cores: full-pcpus-only does not concern CPUs that a container holds already.
        by_core: across-cores goes by cores, and not by the ids of CPUs.
    """

    full_pcpus_only: bool = False
    across_numa: bool = False
    across_cores: bool = False
    align_by_socket: bool = False
    strict_reservation: bool = False
    prefer_uncore: bool = False
    distributes_in_socket: bool = False
    lowers_share: bool = False
    keeps_held_cores: bool = False
    by_core: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeletRules:
    """What configuration and release make the managers do.

    Attributes:
        policy: of the topology manager.
        pod_scope: one merge for the whole pod.
        prefer_closest: prefer-closest-numa-nodes.
        max_zones: max-allowable-numa-nodes.
        cpu: options of the static CPU manager policy, None under policy none.
        memory: whether the memory manager's policy is Static.
        pod_level_ignored: the managers leave pods with pod-level resources alone.
        pod_level_managers: they serve such pods as a whole, or by their eligible containers (gate
            PodLevelResourceManagers).
        memoryless_skipped: the memory manager skips containers that ask for no memory.
        device_zones_only: device hints combine only zones that have a device of that resource.
        any_container_runs: a restarted kubelet finds every container that runs.
        stanza_sets_qos: the pod-level stanza takes the place of the containers in :func:`qos_class`
            (gate PodLevelResources), also an empty one unless ``empty_stanza_absent``.
        qos_by_container: see :func:`rte.k8s.podspec.qos_class`.
        pod_cpus_restored: a restarted kubelet leaves its CPUs to a pod that is served as a whole.
        assumed: nobody has compared them with this kubelet: its patch release is newer than all
            that were read, or its minor release was only read of.
    """

    policy: str
    pod_scope: bool
    prefer_closest: bool
    max_zones: int
    cpu: CPUOptions | None
    memory: bool
    pod_level_ignored: bool
    pod_level_managers: bool
    memoryless_skipped: bool
    device_zones_only: bool
    any_container_runs: bool
    stanza_sets_qos: bool
    empty_stanza_absent: bool
    qos_by_container: bool
    pod_cpus_restored: bool
    assumed: bool


def rules_of(config: KubeletConfig, version: str) -> KubeletRules:
    """The rules of a running kubelet; remembered in the configuration itself.

    Raises:
        outcome.Unpredictable: a version or an option that we know nothing about.
    """
    kept: tuple[str, KubeletRules] | None = vars(config).get("_rules")
    if kept and kept[0] == version:
        return kept[1]
    release = releases.known(version)
    if release is None:
        raise outcome.Unpredictable(outcome.UNKNOWN_VERSION, releases.why_unknown(version))
    if config.is_assumed:
        raise outcome.Unpredictable(
            outcome.UNKNOWN_CONFIGURATION,
            f"of this kubelet only {config.source} could be read, and not what its flags say: let "
            "the agent get nodes/configz",
        )
    try:
        rules = build_rules(config, release, assumed=releases.is_assumed(version))
    except StartError as error:
        raise outcome.Unpredictable(
            outcome.UNKNOWN_CONFIGURATION,
            f"kubelet {version} would not start with this configuration: {error}",
        ) from error
    vars(config)["_rules"] = (version, rules)
    return rules


def build_rules(config: KubeletConfig, release: Release, *, assumed: bool = False) -> KubeletRules:
    """Read the configuration as the kubelet of that release does.

    Raises:
        StartError: the kubelet would refuse to start, whatever the machine.
    """
    gates = {**_DEFAULT_GATES, **config.feature_gates}
    managers = (
        releases.POD_LEVEL_MANAGERS.is_in(release)
        and gates["PodLevelResourceManagers"]
        and gates["PodLevelResources"]
    )
    left_alone = releases.STANZA_ALWAYS_LEFT_ALONE.is_in(release) or gates["PodLevelResources"]
    prefer_closest, max_zones = _topology_options(config, release, gates)
    return KubeletRules(
        policy=config.topology_policy,
        pod_scope=config.topology_scope == "pod",
        prefer_closest=prefer_closest,
        max_zones=max_zones,
        cpu=_cpu_policy(config, release, gates),
        memory=_is_memory_static(config),
        pod_level_ignored=left_alone and not managers,
        pod_level_managers=managers,
        memoryless_skipped=releases.MEMORYLESS_SKIPPED.is_in(release),
        device_zones_only=releases.DEVICE_ZONES_ONLY.is_in(release),
        any_container_runs=releases.ANY_CONTAINER_RUNS.is_in(release),
        stanza_sets_qos=gates["PodLevelResources"],
        empty_stanza_absent=releases.EMPTY_STANZA_ABSENT.is_in(release)
        and gates["PodLevelResourcesFixKubeletQOSClass"],
        qos_by_container=releases.QOS_BY_CONTAINER.is_in(release),
        pod_cpus_restored=releases.POD_CPUS_RESTORED.is_in(release),
        assumed=assumed,
    )


def _topology_options(
    config: KubeletConfig, release: Release, gates: Mapping[str, bool]
) -> tuple[bool, int]:
    prefer_closest, max_zones = False, DEFAULT_MAX_ZONES
    if config.topology_policy == merge.NONE:
        return prefer_closest, max_zones
    for name, value in sorted(config.topology_options.items()):
        if name not in releases.TOPOLOGY_OPTIONS:
            raise StartError(f'topologymanager: unknown Topology Manager Policy option: "{name}"')
        maturity = releases.TOPOLOGY_OPTIONS[name].maturity_in(release)
        if not gates.get(f"TopologyManagerPolicy{maturity}Options", True):
            raise StartError(
                f"topologymanager: topology manager policy {maturity.lower()}-level options not "
                f'enabled, but option "{name}" provided'
            )
        if name == PREFER_CLOSEST:
            prefer_closest = _parse_bool("topologymanager: ", name, value)
        else:
            max_zones = _parse_max_zones(name, value)
    if config.topology_policy not in (
        merge.BEST_EFFORT,
        merge.RESTRICTED,
        merge.SINGLE_NUMA_NODE,
    ):
        raise StartError(f'topologymanager: unknown policy: "{config.topology_policy}"')
    if config.topology_scope not in ("container", "pod"):
        raise StartError(f'topologymanager: unknown scope: "{config.topology_scope}"')
    return prefer_closest, max_zones


def _parse_max_zones(name: str, value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise StartError(
            f'topologymanager: unable to convert policy option to integer "{name}": '
            f'strconv.Atoi: parsing "{value}": invalid syntax'
        )
    if int(value) < DEFAULT_MAX_ZONES:
        raise StartError(
            f'topologymanager: the minimum value of "{name}" should not be less than '
            f"{DEFAULT_MAX_ZONES}"
        )
    return int(value)


def _parse_bool(where: str, name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise StartError(
        f'{where}bad value for option "{name}": strconv.ParseBool: parsing "{value}": '
        "invalid syntax"
    )


def _cpu_policy(
    config: KubeletConfig, release: Release, gates: Mapping[str, bool]
) -> CPUOptions | None:
    if config.cpu_policy == "none":
        if config.cpu_options:
            shown = " ".join(f"{key}:{value}" for key, value in sorted(config.cpu_options.items()))
            raise StartError(
                "cpumanager: new none policy error: None policy: received unsupported "
                f"options=map[{shown}]"
            )
        return None
    if config.cpu_policy != "static":
        raise StartError(f'cpumanager: unknown policy: "{config.cpu_policy}"')
    if config.cpu_reservation_milli <= 0:
        raise StartError(
            "cpumanager: [cpumanager] unable to determine reserved CPU resources for static policy"
        )
    where = "cpumanager: new static policy error: "
    chosen: dict[str, bool] = {}
    for name, value in sorted(config.cpu_options.items()):
        if name not in releases.CPU_OPTIONS:
            raise StartError(f'{where}unknown CPU Manager Policy option: "{name}"')
        maturity = releases.CPU_OPTIONS[name].maturity_in(release)
        if not gates.get(f"CPUManagerPolicy{maturity}Options", True):
            raise StartError(
                f"{where}CPU Manager Policy {maturity}-level Options not enabled, but option "
                f'"{name}" provided'
            )
        chosen[name] = _parse_bool(where, name, value)
    for one, other in (
        (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
        (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
        (PREFER_UNCORE, DISTRIBUTE_ACROSS_CORES),
        (PREFER_UNCORE, DISTRIBUTE_ACROSS_NUMA),
    ):
        if chosen.get(one) and chosen.get(other):
            raise StartError(
                f"{where}static policy options {one} and {other} can not be used at the same time"
            )
    if chosen.get(ALIGN_BY_SOCKET) and config.topology_policy == merge.SINGLE_NUMA_NODE:
        raise StartError(
            f"{where}Topolgy manager {merge.SINGLE_NUMA_NODE} policy is incompatible with "
            f"CPUManager {ALIGN_BY_SOCKET} policy option"
        )
    return CPUOptions(
        full_pcpus_only=chosen.get(FULL_PCPUS_ONLY, False),
        across_numa=chosen.get(DISTRIBUTE_ACROSS_NUMA, False),
        across_cores=chosen.get(DISTRIBUTE_ACROSS_CORES, False),
        align_by_socket=chosen.get(ALIGN_BY_SOCKET, False),
        strict_reservation=chosen.get(STRICT_RESERVATION, False),
        prefer_uncore=chosen.get(PREFER_UNCORE, False),
        distributes_in_socket=chosen.get(ALIGN_BY_SOCKET, False)
        and releases.DISTRIBUTION_IN_SOCKET.is_in(release),
        lowers_share=releases.SHARE_LOWERED.is_in(release),
        keeps_held_cores=releases.HELD_CORES_KEPT.is_in(release),
        by_core=releases.CORES_BY_TOPOLOGY.is_in(release),
    )


def _is_memory_static(config: KubeletConfig) -> bool:
    if config.memory_policy not in ("None", "Static"):
        raise StartError(f'memorymanager: unknown policy: "{config.memory_policy}"')
    return config.memory_policy == "Static"
