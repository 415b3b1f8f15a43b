"""What changed in the kubelet's admission, release by release: data, and how to look it up.

A new release of Kubernetes is a new entry in :data:`NEWEST_PATCH`, a new :class:`ReleaseChange`
for each rule that differs (``python -m tests.releases OLD NEW`` says where to look), and new steps
of maturity of the options. ``rules`` turns all of it, with a configuration, into the rules of one
kubelet. The table in docs/placement.md is :func:`table`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

#: Minor release of Kubernetes 1 -> the newest patch release that was read, or run and compared.
NEWEST_PATCH = {34: 10, 35: 4, 36: 4, 37: 2}

#: Minor release -> patch release of those whose rules follow from their published changes alone:
#: nothing was compared with such a kubelet yet. Recorded, an entry moves up.
ASSUMED = {38: 0}


class Release(NamedTuple):
    """A release ``v1.<minor>.<patch>`` of Kubernetes."""

    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"1.{self.minor}.{self.patch}"


#: The version that stands for an unnamed kubelet, where one is made up.
NEWEST = f"v{Release(*max(NEWEST_PATCH.items()))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseChange:
    """One difference between releases.

    Attributes:
        name: how tests and the documentation call it.
        since: the first release that has it.
        backports: earlier minor releases that got it too, with the first patch release that has it.
        what: the rule since then; ``before`` the one until then.
        source: KEP or pull request.
    """

    name: str
    since: Release
    backports: tuple[Release, ...] = ()
    what: str
    before: str
    source: str

    def is_in(self, release: Release) -> bool:
        """Whether that release has it."""
        return release >= self.since or any(
            release.minor == first.minor and release >= first for first in self.backports
        )


ANY_CONTAINER_RUNS = ReleaseChange(
    name="any-container-runs",
    since=Release(35),
    backports=(Release(34, 8),),
    what="after a restart, before the device plugins are back, a container counts as running if "
    "any of its runtime containers runs",
    before="if the one that happens to be found first runs",
    source="pkg/kubelet/cm/devicemanager/manager.go, isContainerAlreadyRunning",
)
DEVICE_ZONES_ONLY = ReleaseChange(
    name="device-zones-only",
    since=Release(36),
    what="device hints combine only zones that have a device of that resource (other wide hints "
    "vanish)",
    before="they combine all zones",
    source="kubernetes/kubernetes#138244",
)
STANZA_ALWAYS_LEFT_ALONE = ReleaseChange(
    name="stanza-always-left-alone",
    since=Release(36),
    what="CPU and memory manager leave pods with pod-level resources alone, unless "
    "PodLevelResourceManagers is on",
    before="only while the gate PodLevelResources is on",
    source="KEP-5526",
)
POD_LEVEL_MANAGERS = ReleaseChange(
    name="pod-level-managers",
    since=Release(36),
    what="gate PodLevelResourceManagers (off by default): pods with pod-level resources are served "
    "as a whole (pod scope) or by their eligible containers",
    before="no such gate",
    source="KEP-5526",
)
MEMORYLESS_SKIPPED = ReleaseChange(
    name="memoryless-skipped",
    since=Release(37),
    what="the memory manager skips a container that asks for no memory",
    before="it allocates nothing for it, which can fail",
    source="pkg/kubelet/cm/memorymanager/policy_static.go, Allocate",
)
HELD_CORES_KEPT = ReleaseChange(
    name="held-cores-kept",
    since=Release(37),
    what="full-pcpus-only is checked after the look at CPUs that the container holds",
    before="before it: after a restart, running containers can be refused for it",
    source="kubernetes/kubernetes#129079",
)
DISTRIBUTION_IN_SOCKET = ReleaseChange(
    name="distribution-in-socket",
    since=Release(37),
    what="distribute-cpus-across-numa with align-by-socket: combinations of zones in one socket "
    "win, and a zone may give less than the even share",
    before="align-by-socket means nothing to the picker",
    source="kubernetes/kubernetes#139778",
)
SHARE_LOWERED = ReleaseChange(
    name="share-lowered",
    since=Release(37),
    what="distribute-cpus-across-numa: the even share is lowered to what each chosen zone has",
    before="a zone that lacks it gives nothing (after slice sharing)",
    source="kubernetes/kubernetes#139778",
)
QOS_BY_CONTAINER = ReleaseChange(
    name="qos-by-container",
    since=Release(37),
    what="the QoS class of a pod without a recorded one follows from the class of each container",
    before="from sums over all containers",
    source="pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS",
)
EMPTY_STANZA_ABSENT = ReleaseChange(
    name="empty-stanza-absent",
    since=Release(37),
    what="an empty pod-level stanza counts as absent for the QoS class (gate "
    "PodLevelResourcesFixKubeletQOSClass)",
    before="it makes the pod BestEffort",
    source="kubernetes/kubernetes#137150",
)

CORES_BY_TOPOLOGY = ReleaseChange(
    name="cores-by-topology",
    since=Release(38),
    what="distribute-cpus-across-cores takes one CPU of each core of a socket in turn",
    before="the free CPUs of a socket by their ids, which may be siblings",
    source="kubernetes/kubernetes#140766",
)
POD_CPUS_RESTORED = ReleaseChange(
    name="pod-cpus-restored",
    since=Release(38),
    what="after a restart, a pod that is served as a whole keeps its CPUs",
    before="it takes others once more, or is refused, and the first ones are lost",
    source="kubernetes/kubernetes#141041",
)

#: All of them, oldest first.
CHANGES = (
    ANY_CONTAINER_RUNS,
    DEVICE_ZONES_ONLY,
    STANZA_ALWAYS_LEFT_ALONE,
    POD_LEVEL_MANAGERS,
    MEMORYLESS_SKIPPED,
    HELD_CORES_KEPT,
    DISTRIBUTION_IN_SOCKET,
    SHARE_LOWERED,
    QOS_BY_CONTAINER,
    EMPTY_STANZA_ABSENT,
    CORES_BY_TOPOLOGY,
    POD_CPUS_RESTORED,
)

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
ALIGN_BY_SOCKET = "align-by-socket"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE = "prefer-align-cpus-by-uncorecache"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ZONES = "max-allowable-numa-nodes"

ALPHA, BETA, STABLE = "Alpha", "Beta", "Stable"


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """An option of a manager's policy; ``maturity``: first minor release -> maturity since then."""

    source: str
    maturity: dict[int, str]

    def maturity_in(self, release: Release) -> str:
        """Alpha, Beta or Stable; a gate of that name (``...AlphaOptions``) decides over the use."""
        return self.maturity[max(minor for minor in self.maturity if minor <= release.minor)]


#: Options of the static CPU manager policy (policy_options.go).
CPU_OPTIONS = {
    FULL_PCPUS_ONLY: PolicyOption("KEP-2625", {33: STABLE}),
    DISTRIBUTE_ACROSS_NUMA: PolicyOption("KEP-2902", {33: BETA}),
    DISTRIBUTE_ACROSS_CORES: PolicyOption("KEP-4176", {31: ALPHA}),
    ALIGN_BY_SOCKET: PolicyOption("KEP-3327", {25: ALPHA}),
    STRICT_RESERVATION: PolicyOption("KEP-4540", {33: BETA, 35: STABLE}),
    PREFER_UNCORE: PolicyOption("KEP-4800", {34: BETA, 36: STABLE}),
}
#: Options of the topology manager.
TOPOLOGY_OPTIONS = {
    PREFER_CLOSEST: PolicyOption("KEP-3545", {32: STABLE}),
    MAX_ZONES: PolicyOption("KEP-4622", {31: BETA, 35: STABLE}),
}


def parse(version: str) -> Release | None:
    """The release of a kubelet's version (``v1.35.4``, ``v1.36.2-eks-1a2b``); None if it is not one
    of Kubernetes 1.
    """
    match = re.match(r"v?1\.(\d{1,3})(?:\.(\d{1,4}))?(?:\D|$)", version)
    return Release(int(match[1]), int(match[2] or 0)) if match else None


def known(version: str) -> Release | None:
    """The release whose rules a kubelet follows, None where we have none.

    A patch release newer than all these is taken for the newest of them.
    """
    release = parse(version)
    newest = NEWEST_PATCH | ASSUMED
    if release is None or release.minor not in newest:
        return None
    return min(release, Release(release.minor, newest[release.minor]))


def is_assumed(version: str) -> bool:
    """Whether the version has rules, but only those of an older patch release, or unproven ones."""
    release = known(version)
    return release is not None and (parse(version) != release or release.minor in ASSUMED)


def assumption(version: str) -> str:
    """One line for a version whose rules are assumed, empty for all others."""
    if not is_assumed(version):
        return ""
    release = known(version)
    if release is not None and release.minor in ASSUMED:
        return f"kubelet {version}: its rules are read from published changes, and not yet proven"
    return f"kubelet {version} is taken for v{release}, the newest whose rules are known"


def why_unknown(version: str) -> str:
    """One line for a version without rules: what is known, and what to wait for."""
    minors = sorted(NEWEST_PATCH | ASSUMED)
    line = f"no rules for kubelet {version or 'of unknown version'}: 1.{minors[0]} to "
    line += f"1.{minors[-1]} are known"
    release = parse(version)
    if release is not None and release.minor > minors[-1]:
        line += f"; wait for the release of rte that lists 1.{release.minor}"
    return line


def table() -> str:
    """The table of docs/placement.md, in Markdown."""
    minors = sorted(NEWEST_PATCH | ASSUMED)
    names = (f"1.{minor}" + (" (assumed)" if minor in ASSUMED else "") for minor in minors)
    head = ["", *names, "source"]
    rows = [head, ["---"] * len(head)]
    for name, option in {**CPU_OPTIONS, **TOPOLOGY_OPTIONS}.items():
        cells = [option.maturity_in(Release(minor)).lower() for minor in minors]
        if len(set(cells)) > 1:
            rows.append([f"`{name}`", *cells, option.source])
    for change in CHANGES:
        cells = [_cell(change, minor) for minor in minors]
        rows.append([f"{change.what}; before: {change.before}", *cells, change.source])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(change: ReleaseChange, minor: int) -> str:
    if change.is_in(Release(minor)):
        return "yes"
    return next((f"from {first}" for first in change.backports if first.minor == minor), "no")
