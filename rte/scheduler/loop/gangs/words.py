"""Why a gang waits, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model.words import counted
from rte.placement.joint.gang import GangVerdict
from rte.placement.joint.wording import missing_words
from rte.scheduler.loop.verdicts import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.k8s.gang import GangKey
    from rte.placement.joint.fit import Missing
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.decide import Attempt, Found
    from rte.scheduler.loop.gangs.unit import GangTally


def names(unit: Iterable[GangKey]) -> str:
    """``namespace/name`` of each gang."""
    return " and ".join(f"{key.namespace}/{key.name}" for key in unit)


def lacking(count: GangTally) -> str:
    """Pods of the gang are missing."""
    there = len(count.waiting) + len(count.placed) + count.ended
    return (
        f"waits for {counted(count.lacking, 'more pod')} of gang {names([count.gang.key])}: "
        f"{there} of {count.gang.min_count} are there"
    )


def unplaced(unit: Sequence[GangKey], attempt: Attempt, cluster: Cluster) -> str:
    """Too few of the gang's pods find a place."""
    wanted, answer = attempt.wanted, attempt.answer
    head = f"{counted(wanted.need, 'pod')} of gang {names(unit)} must find a place at once"
    if answer.verdict is GangVerdict.FITS:
        return f"{head}: rules between its pods leave fewer than that"
    if answer.verdict is GangVerdict.CUT_OFF:
        text = f"{head}: {len(answer.places)} were found when the search was cut off"
    else:
        text = f"{head}, {len(answer.places)} find one; to blame: {answer.blame or 'not known'}"
    for short in answer.shortages[:2]:
        text += f"; of {len(short.pods)} like {_named(cluster, short.pods[0])} at most "
        text += f"{short.places} find a place"
    return text + _one_more(attempt.missing)


def unrehearsed(found: Found, cycle: Cycle) -> str:
    """Pods that do not exist yet would not all find a place."""
    pods, ahead, answer = found.question.wanted.pods, found.question.ahead, found.answer
    before = f", {ahead} of them let start before," if ahead else ""
    head = f"of {counted(len(pods), 'pod')}{before}"
    if answer.verdict is GangVerdict.FITS:
        return f"{head} fewer find a place at once: rules between them, or their devices"
    text = f"{head} {len(answer.places)} find a place at once"
    placed = {id(pod.shape) for pod in pods if pod.uid in answer.places}
    nowhere = next((pod for pod in pods[ahead:] if id(pod.shape) not in placed), None)
    if answer.verdict is GangVerdict.CUT_OFF:
        text += ", when the search was cut off"
    elif nowhere is not None:
        text += f"; {nowhere.key}: {explain(nowhere, cycle)[0].rstrip('.')}"
    elif answer.blame:
        text += f"; to blame: {answer.blame}"
    return text + _one_more(found.missing)


def _one_more(missing: tuple[PodView, Missing] | None) -> str:
    return f"; one more like {missing[0].key}: {missing_words(missing[1])}" if missing else ""


def _named(cluster: Cluster, uid: str) -> str:
    return cluster.pods[uid].key if uid in cluster.pods else uid
