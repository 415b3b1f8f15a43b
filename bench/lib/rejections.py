"""Whose pod a kubelet rejected, and whether our scheduler could have known better.

A pod of ours may be rejected only when somebody else put a pod on that node which we could not have
seen: one bound or created there *after* the last change that we knew of when we decided, and not
after our bind. The order is that of the resourceVersions of the API.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench.lib.jobs import Placer


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A pod came to a node.

    Attributes:
        pod, uid, placer, node: which one, by whom, and where.
        version: resourceVersion of its bind, or of its creation on the node; None where it was not
            seen as it happened.
    """

    pod: str
    uid: str
    placer: Placer
    node: str
    version: int | None


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A kubelet rejected a pod: :class:`Arrival`, and the kubelet's words."""

    arrival: Arrival
    reason: str
    message: str = ""


class Decision(NamedTuple):
    """Our scheduler gives a pod a node, knowing every change of a pod up to ``seen``."""

    uid: str
    node: str
    seen: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is to be said of one rejection; ``excused`` is None where nobody claims anything.

    Attributes:
        placer: ``ours``, ``foreign`` or ``other``.
        seen, bound: the last change that our scheduler knew when it decided, and its bind.
        because: pods that it could not have seen, or why there is no excuse.
    """

    pod: str
    placer: str
    node: str
    reason: str
    message: str
    seen: int | None = None
    bound: int | None = None
    excused: bool | None = None
    because: str = ""

    def as_json(self) -> dict[str, Any]:
        """What is known, as plain values."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def judge(
    rejections: Iterable[Rejection],
    arrivals: Iterable[Arrival],
    seen: Mapping[str, int] | None,
) -> list[Finding]:
    """Look for the excuse of each rejection of a pod of ours.

    Args:
        rejections: in any order.
        arrivals: of every pod on any node.
        seen: UID -> the last change that our scheduler knew when it decided; None for a scheduler
            that does not tell (nothing is excused or held against it).
    """
    others = [each for each in arrivals if each.placer != "subject"]
    findings = []
    for each in rejections:
        came = each.arrival
        finding = Finding(
            pod=came.pod,
            placer="ours" if came.placer == "subject" else came.placer,
            node=came.node,
            reason=each.reason,
            message=each.message,
        )
        if came.placer == "subject" and seen is not None:
            finding = _weigh(finding, came, seen.get(came.uid), others)
        findings.append(finding)
    return findings


def counts(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Placer -> reason -> number."""
    out: dict[str, Counter[str]] = {}
    for each in findings:
        out.setdefault(each.placer, Counter())[each.reason] += 1
    return {placer: dict(reasons) for placer, reasons in out.items()}


def decisions(log: Iterable[str]) -> Iterator[Decision]:
    """What the lines of a debug log of ours (JSON) tell of decisions, in their order."""
    for line in log:
        if '"decided"' in line:
            fields = json.loads(line)
            yield Decision(str(fields["uid"]), str(fields["node"]), int(fields["pods_seen"]))


def _weigh(finding: Finding, came: Arrival, seen: int | None, others: Iterable[Arrival]) -> Finding:
    if seen is None or came.version is None:
        missing = "bind was not seen" if seen is not None else "decision is not in the log"
        because, excused = f"its {missing}", False
    else:
        unseen = [
            f"{other.placer} {other.pod} at {other.version}"
            for other in others
            if other.node == came.node
            and other.version is not None
            and seen < other.version < came.version
        ]
        excused = bool(unseen)
        because = ", ".join(unseen) or "nobody else came to the node in between"
    return replace(finding, seen=seen, bound=came.version, excused=excused, because=because)
