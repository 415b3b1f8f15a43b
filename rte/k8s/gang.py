"""Gangs: pods that are to be placed together or not at all, from every source that names them.

Sources: ``scheduling.k8s.io`` PodGroup (``spec.schedulingGroup`` of a pod, Kubernetes 1.36 and
1.37; KEP-4671), the Workload of 1.35 (``spec.workloadRef``), the PodGroup of scheduler-plugins
(``scheduling.x-k8s.io``, by a label) and Koordinator's annotations. Fields are those of the API
types (k8s.io/api scheduling/v1alpha1 of 1.35, v1alpha2 of 1.36, v1beta1 of 1.37).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rte import errors
from rte.reader import jsontext
from rte.reader.json import as_table

if TYPE_CHECKING:
    from rte.reader.json import Json


#: scheduler-plugins' labels, the present one and the one of its beginnings.
POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
KOORDINATOR = "gang.scheduling.koordinator.sh/"
#: Annotations of a gang: the node label of which its pods need one value, and those of which they
#: had better have one, the narrowest first (``example.com/rack,example.com/block``).
REQUIRED_TOPOLOGY = "topology.rte.dev/required-topology"
PREFERRED_TOPOLOGY = "topology.rte.dev/preferred-topology"
#: Levels of a network that somebody may name.
_MOST_LEVELS = 8
#: All sources count in 32 bits.
_MOST = 2**31 - 1
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(ms|h|m|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class GangSource(StrEnum):
    """Whose words name the gang; equal names of two sources are two gangs."""

    POD_GROUP = "scheduling.k8s.io/PodGroup"
    WORKLOAD = "scheduling.k8s.io/Workload"
    SCHEDULER_PLUGINS = "scheduling.x-k8s.io/PodGroup"
    KOORDINATOR = "gang.scheduling.koordinator.sh"


class GangKey(NamedTuple):
    """Names a gang; in a Workload the ``name`` is ``WORKLOAD/GROUP[/REPLICA]``."""

    source: GangSource
    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Gang:
    """What the members of a gang have in common.

    Attributes:
        key: its name.
        min_count: pods that must be placed at once; None: a group whose pods go one by one.
        topology_key: node label of which all its pods need one value, ``""``: none.
        preferred_keys: node labels of which they had better have one value, the narrowest first.
        with_gangs: names of the gangs that are placed only together with this one, itself included
            where it is one of them.
        counts_running: pods that run already count for ``min_count``.
        stays_whole: once so many were placed, later pods go one by one (Koordinator's match policy
            ``once-satisfied``).
        is_disrupted_whole: who evicts one pod has to evict all (disruption mode ``all``).
        gives_up: where one pod fails, those that have a place give theirs back (Koordinator's
            mode ``Strict``; all others).
        timeout_s: how long its places are held while others are looked for, None: not said.
    """

    key: GangKey
    min_count: int | None
    topology_key: str = ""
    preferred_keys: tuple[str, ...] = ()
    with_gangs: frozenset[str] = field(default=frozenset())
    counts_running: bool = True
    stays_whole: bool = False
    is_disrupted_whole: bool = False
    gives_up: bool = True
    timeout_s: float | None = None


def parse_pod_group(obj: Json) -> Gang:
    """A PodGroup of ``scheduling.k8s.io``: v1alpha2 or v1beta1.

    Raises:
        errors.ParseError: malformed.
    """
    metadata, spec = as_table(obj.get("metadata"), "metadata"), as_table(obj.get("spec"), "spec")
    constraints = as_table(spec.get("schedulingConstraints"), "schedulingConstraints")
    topology = constraints.get("topology") or []
    if not isinstance(topology, list) or len(topology) > 1:
        raise errors.ParseError("schedulingConstraints.topology", topology, "expected one at most")
    mode = spec.get("disruptionMode")
    # A text in v1alpha2, a union of objects in v1beta1.
    whole = mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)
    return Gang(
        key=_key(GangSource.POD_GROUP, metadata),
        min_count=_policy(as_table(spec.get("schedulingPolicy"), "schedulingPolicy")),
        topology_key=str(as_table(topology[0], "topology").get("key") or "") if topology else "",
        preferred_keys=_levels(as_table(metadata.get("annotations"), "annotations")),
        is_disrupted_whole=whole,
    )


def parse_workload(obj: Json, key: GangKey) -> Gang | None:
    """The gang that ``key`` names in a Workload of 1.35 (v1alpha1); None: it has no such group.

    Raises:
        errors.ParseError: malformed.
    """
    spec = as_table(obj.get("spec"), "spec")
    groups = spec.get("podGroups") or []
    if not isinstance(groups, list):
        raise errors.ParseError("podGroups", groups, "expected a list")
    wanted = key.name.split("/")[1]
    for item in groups:
        group = as_table(item, "podGroups")
        if group.get("name") == wanted:
            return Gang(key=key, min_count=_policy(as_table(group.get("policy"), "policy")))
    return None


def parse_plugins_pod_group(obj: Json) -> Gang:
    """A PodGroup of scheduler-plugins (``scheduling.x-k8s.io/v1alpha1``), which Koordinator uses
    too, with annotations of its own.

    Raises:
        errors.ParseError: malformed.
    """
    metadata, spec = as_table(obj.get("metadata"), "metadata"), as_table(obj.get("spec"), "spec")
    timeout = spec.get("scheduleTimeoutSeconds")
    annotations = as_table(metadata.get("annotations"), "annotations")
    return _koordinated(
        _key(GangSource.SCHEDULER_PLUGINS, metadata),
        annotations,
        min_count=_count(spec.get("minMember", 1), "minMember"),
        timeout_s=None if timeout is None else float(_count(timeout, "scheduleTimeoutSeconds")),
    )


def parse_annotations(pod: Json) -> Gang:
    """The gang that a pod's own annotations describe (Koordinator's way without a PodGroup).

    Raises:
        errors.ParseError: malformed.
    """
    metadata = as_table(pod.get("metadata"), "metadata")
    annotations = as_table(metadata.get("annotations"), "annotations")
    name = str(annotations.get(f"{KOORDINATOR}name") or "")
    namespace = str(metadata.get("namespace") or "default")
    minimum = annotations.get(f"{KOORDINATOR}min-available")
    waits = str(annotations.get(f"{KOORDINATOR}waiting-time") or "")
    return _koordinated(
        GangKey(GangSource.KOORDINATOR, namespace, name),
        annotations,
        min_count=_count(minimum, f"{KOORDINATOR}min-available"),
        timeout_s=_duration(waits) if waits else None,
    )


def _koordinated(
    key: GangKey, annotations: Json, *, min_count: int, timeout_s: float | None
) -> Gang:
    text = str(annotations.get(f"{KOORDINATOR}groups") or "[]")
    groups = jsontext.load(text, f"{KOORDINATOR}groups")
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        raise errors.ParseError(f"{KOORDINATOR}groups", text, "expected a list of names")
    policy = annotations.get(f"{KOORDINATOR}match-policy") or "once-satisfied"
    return Gang(
        key=key,
        min_count=min_count,
        topology_key=str(annotations.get(REQUIRED_TOPOLOGY) or ""),
        preferred_keys=_levels(annotations),
        with_gangs=frozenset(groups),
        counts_running=policy != "only-waiting",
        stays_whole=policy == "once-satisfied",
        gives_up=annotations.get(f"{KOORDINATOR}mode") != "NonStrict",
        timeout_s=timeout_s,
    )


def _levels(annotations: Json) -> tuple[str, ...]:
    text = str(annotations.get(PREFERRED_TOPOLOGY) or "")
    keys = tuple(key.strip() for key in text.split(",")) if text else ()
    if len(keys) > _MOST_LEVELS or not all(keys):
        what = f"expected at most {_MOST_LEVELS} node labels"
        raise errors.ParseError(PREFERRED_TOPOLOGY, text, what)
    return keys


def _policy(policy: Json) -> int | None:
    if "gang" in policy:
        return _count(as_table(policy["gang"], "gang").get("minCount"), "minCount")
    if "basic" in policy:
        return None
    raise errors.ParseError("schedulingPolicy", dict(policy), "expected basic or gang")


def _key(source: GangSource, metadata: Json) -> GangKey:
    return GangKey(
        source, str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    )


def _count(value: object, what: str) -> int:
    text = str(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST))
    if isinstance(value, bool) or not is_number or not 1 <= int(text) <= _MOST:
        raise errors.ParseError(what, value, f"expected a number of 1 to {_MOST}")
    return int(text)


def _duration(text: str) -> float:
    """Seconds of a duration as Go writes it: ``1h2m3s``, ``300ms``."""
    if not _DURATION.fullmatch(text):
        raise errors.ParseError("waiting-time", text, "expected a duration such as 90s")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
