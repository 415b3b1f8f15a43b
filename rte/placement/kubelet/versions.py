"""The kubelet's configuration as rules, keyed by its minor version.

Sources: policy_options.go of the CPU and topology manager, pkg/features/kube_features.go. What
differs between versions is here and nowhere else; docs/placement.md lists it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.kubelet import merge, outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.node import KubeletConfig
    from rte.model.pod import Pod

#: Minor versions of Kubernetes 1 whose source was read.
KNOWN_MINORS = range(34, 37)

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
ALIGN_BY_SOCKET = "align-by-socket"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE = "prefer-align-cpus-by-uncorecache"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ZONES = "max-allowable-numa-nodes"

_ALPHA, _BETA, _STABLE = "Alpha", "Beta", "Stable"
_MATURITY = {
    34: {STRICT_RESERVATION: _BETA, PREFER_UNCORE: _BETA, MAX_ZONES: _BETA},
    35: {STRICT_RESERVATION: _STABLE, PREFER_UNCORE: _BETA, MAX_ZONES: _STABLE},
    36: {STRICT_RESERVATION: _STABLE, PREFER_UNCORE: _STABLE, MAX_ZONES: _STABLE},
}
_CPU_MATURITY = {
    FULL_PCPUS_ONLY: _STABLE,
    DISTRIBUTE_ACROSS_NUMA: _BETA,
    DISTRIBUTE_ACROSS_CORES: _ALPHA,
    ALIGN_BY_SOCKET: _ALPHA,
}
_DEFAULT_MAX_ZONES = 8
_DEFAULT_GATES = {
    "CPUManagerPolicyAlphaOptions": False,
    "CPUManagerPolicyBetaOptions": True,
    "TopologyManagerPolicyAlphaOptions": False,
    "TopologyManagerPolicyBetaOptions": True,
    "PodLevelResources": True,
    "PodLevelResourceManagers": False,
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class StartError(Exception):
    """A kubelet with this configuration ends at once; the text is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CPUOptions:
    """Options of the static CPU manager policy."""

    full_pcpus_only: bool = False
    across_numa: bool = False
    across_cores: bool = False
    align_by_socket: bool = False
    strict_reservation: bool = False
    prefer_uncore: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What the configuration makes the managers do.

    Attributes:
        policy: of the topology manager.
        pod_scope: one merge for the whole pod.
        prefer_closest: prefer-closest-numa-nodes.
        max_zones: max-allowable-numa-nodes.
        cpu: options of the static CPU manager policy, None under policy none.
        memory: whether the memory manager's policy is Static.
        pod_level_ignored: the managers leave pods with pod-level resources alone.
        pod_level_managers: they serve such pods as a whole instead (alpha in 1.36).
        device_zones_only: device hints combine only zones that have a device of that resource.
    """

    policy: str
    pod_scope: bool
    prefer_closest: bool
    max_zones: int
    cpu: CPUOptions | None
    memory: bool
    pod_level_ignored: bool
    pod_level_managers: bool
    device_zones_only: bool


def minor_of(version: str) -> int | None:
    """The minor version of a Kubernetes version (``v1.35.4``), None where we have no rules."""
    match = re.match(r"v?1\.(\d{1,3})(?:\D|$)", version)
    return int(match[1]) if match and int(match[1]) in KNOWN_MINORS else None


def rules_of(config: KubeletConfig, version: str) -> Rules:
    """The rules of a running kubelet; remembered in the configuration itself.

    Raises:
        outcome.Unpredictable: a version or an option that we know nothing about.
    """
    kept: tuple[str, Rules] | None = vars(config).get("_rules")
    if kept and kept[0] == version:
        return kept[1]
    minor = minor_of(version)
    if minor is None:
        raise outcome.Unpredictable(
            outcome.UNKNOWN_VERSION,
            f"no rules for kubelet {version or 'of unknown version'}: "
            f"1.{KNOWN_MINORS[0]} to 1.{KNOWN_MINORS[-1]} are known",
        )
    try:
        rules = build_rules(config, minor)
    except StartError as error:
        raise outcome.Unpredictable(
            outcome.UNKNOWN_CONFIGURATION,
            f"kubelet {version} would not start with this configuration: {error}",
        ) from error
    vars(config)["_rules"] = (version, rules)
    return rules


def build_rules(config: KubeletConfig, minor: int) -> Rules:
    """Read the configuration as the kubelet of that minor version does.

    Raises:
        StartError: the kubelet would refuse to start, whatever the machine.
    """
    gates = {**_DEFAULT_GATES, **config.feature_gates}
    managers = minor >= 36 and gates["PodLevelResourceManagers"]
    prefer_closest, max_zones = _topology_options(config, minor, gates)
    return Rules(
        policy=config.topology_policy,
        pod_scope=config.topology_scope == "pod",
        prefer_closest=prefer_closest,
        max_zones=max_zones,
        cpu=_cpu_policy(config, minor, gates),
        memory=_is_memory_static(config),
        # Since 1.36 the gate of the pod-level stanza itself does not count any more.
        pod_level_ignored=not managers and (minor >= 36 or gates["PodLevelResources"]),
        pod_level_managers=managers,
        device_zones_only=minor >= 36,
    )


def has_pod_level_resources(pod: Pod) -> bool:
    """Whether the pod-level stanza names a resource that it may (IsPodLevelResourcesSet)."""
    return any(
        name in ("cpu", "memory") or name.startswith("hugepages-")
        for stanza in (pod.pod_requests, pod.pod_limits)
        for name in stanza or ()
    )


def _topology_options(
    config: KubeletConfig, minor: int, gates: Mapping[str, bool]
) -> tuple[bool, int]:
    prefer_closest, max_zones = False, _DEFAULT_MAX_ZONES
    if config.topology_policy == merge.NONE:
        return prefer_closest, max_zones
    for name, value in sorted(config.topology_options.items()):
        maturity = {PREFER_CLOSEST: _STABLE, MAX_ZONES: _MATURITY[minor][MAX_ZONES]}.get(name)
        if maturity is None:
            raise StartError(f'topologymanager: unknown Topology Manager Policy option: "{name}"')
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
    if int(value) < _DEFAULT_MAX_ZONES:
        raise StartError(
            f'topologymanager: the minimum value of "{name}" should not be less than '
            f"{_DEFAULT_MAX_ZONES}"
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


def _cpu_policy(config: KubeletConfig, minor: int, gates: Mapping[str, bool]) -> CPUOptions | None:
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
            "cpumanager: [cpumanager] the static policy requires systemreserved.cpu + "
            "kubereserved.cpu to be greater than zero"
        )
    where = "cpumanager: new static policy error: "
    chosen: dict[str, bool] = {}
    for name, value in sorted(config.cpu_options.items()):
        maturity = {**_CPU_MATURITY, **_MATURITY[minor]}.get(name)
        if maturity is None or name == MAX_ZONES:
            raise StartError(f'{where}unknown CPU Manager Policy option: "{name}"')
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
    )


def _is_memory_static(config: KubeletConfig) -> bool:
    if config.memory_policy not in ("None", "Static"):
        raise StartError(f'memorymanager: unknown policy: "{config.memory_policy}"')
    return config.memory_policy == "Static"
