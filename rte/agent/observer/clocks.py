"""The seconds that an observer goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """Seconds.

    Attributes:
        admission: how long the last write of an admission is waited for, once its first is seen.
        torn: first wait before files that do not agree are read again without a new write.
        torn_most: longest such wait.
        settled: files that stood still this long are not caught between two writes.
        check: after a change in the files, podresources is compared this much later, if nothing
            else has changed meanwhile.
        check_most: by then it is compared whatever changes.
        source: between attempts to reach a kubelet that does not answer.
        resync: between looks at a restarted kubelet until it has re-admitted its pods.
        resync_most: a kubelet that runs this long has re-admitted what it ever will.
        stale: after so long without a sound reading the last one is not to be trusted.
        relearn: a kubelet has told the API what is new about it this much later; also the first
            wait before a better source of its configuration is asked again, or a report that may be
            the former kubelet's is read again, which doubles.
        relearn_most: longest such wait.
        unknown: first wait before a node is asked about again that could not be learnt about,
            which doubles.
        unknown_most: longest such wait.
        poll: everything is asked once in so long, give or take a fifth of it.
    """

    admission: float = 0.1
    torn: float = 0.02
    torn_most: float = 1.0
    settled: float = 1.0
    check: float = 0.25
    check_most: float = 1.0
    source: float = 1.0
    resync: float = 0.1
    resync_most: float = 120.0
    stale: float = 30.0
    relearn: float = 15.0
    relearn_most: float = 300.0
    unknown: float = 0.1
    unknown_most: float = 10.0
    poll: float = 60.0
