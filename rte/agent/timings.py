"""The seconds that an agent goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Seconds: of the observer, then of the writer, the Lease, and what tells of changes.

    Attributes:
        admission: how long the last write of an admission is waited for, once its first is seen.
        torn: first wait before files that do not agree are read again without a new write.
        torn_most: longest such wait.
        settled: files that stood still this long are not caught between two writes.
        check: after a change in the files, podresources is compared this much later, if nothing
            else has changed meanwhile.
        check_most: by then it is compared whatever changes.
        source: between attempts to reach a kubelet that does not answer.
        readmission: between looks at a restarted kubelet until it has re-admitted its pods.
        readmission_most: a kubelet that runs this long has re-admitted what it ever will.
        stale: after so long without a sound reading the last one is not to be trusted.
        relearn: a kubelet has told the API what is new about it this much later; also the first
            wait before a better source of its configuration is asked again, or a report that may be
            the former kubelet's is read again, which doubles.
        relearn_most: longest such wait.
        node: between looks at the Node's annotations that are copied.
        unknown: first wait before a node is asked about again that could not be learnt about,
            which doubles.
        unknown_most: longest such wait.
        poll: everything is asked once in so long, give or take a fifth of it.
        first_retry: before the second attempt to write; doubles up to ``last_retry``, half of it
            random.
        last_retry: the longest wait between attempts.
        resync: the object is read afresh this often (30 % jitter) even when nothing happens.
        recreate: from making the object until it is made again for somebody who deletes it.
        renew: between renewals of the Lease.
        lease: from a renewal until others take the agent for dead, and the longest that the API
            server may lack the current state.
        machine: between looks at on-line CPUs and pools of huge pages.
        list_pods: between podresources lists where pods may not be watched.
    """

    admission: float = 0.1
    torn: float = 0.02
    torn_most: float = 1.0
    settled: float = 1.0
    check: float = 0.25
    check_most: float = 1.0
    source: float = 1.0
    readmission: float = 0.1
    readmission_most: float = 120.0
    stale: float = 30.0
    relearn: float = 15.0
    relearn_most: float = 300.0
    node: float = 300.0
    unknown: float = 0.1
    unknown_most: float = 10.0
    poll: float = 60.0

    first_retry: float = 0.1
    last_retry: float = 10.0
    resync: float = 3600.0
    recreate: float = 1.0

    renew: float = 10.0
    lease: float = 40.0

    machine: float = 5.0
    list_pods: float = 1.0


#: As a daemon has them.
DEFAULT = Timings()
