"""Jobs: pods until enough of them have succeeded, or too many have failed.

Source: kubernetes ``pkg/controller/job``. A pod is counted when its finalizer is taken off, which
is one step here. Not done: pod failure policies, success policies, limits per index.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

from rte.k8s.podspec import is_ready
from rte.model import bits
from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import (
    Controller,
    Obj,
    has_ended,
    is_leaving,
    moment,
    owned_by,
    seconds_until,
    with_condition,
)

_SOURCE = "job-controller"
_FINALIZER = "batch.kubernetes.io/job-tracking"
_INDEX = "batch.kubernetes.io/job-completion-index"


class Jobs(Controller):
    """See the module."""

    watched = ("jobs", "pods")

    def sync(self) -> float | None:
        """One look at everything."""
        pods = self.api.list("pods").items
        due: list[float] = []
        for job in self.api.list("jobs").items:
            with contextlib.suppress(StatusError):  # another writer was faster: it wakes us again
                due += self._step(job, owned_by(job, pods))
        return min(due, default=None)

    def _step(self, job: Obj, mine: list[Obj]) -> list[float]:
        status = dict(job.get("status") or {})
        finished = _says(job, "Complete") or _says(job, "Failed")
        for pod in mine:
            if _FINALIZER not in (pod["metadata"].get("finalizers") or ()):
                continue
            if has_ended(pod) or is_leaving(pod) or finished or is_leaving(job):
                self._count(job, pod, status)
        if finished or is_leaving(job):
            return self._after(job)
        now = self.api.now()
        active = [pod for pod in mine if not has_ended(pod) and not is_leaving(pod)]
        suspended = job["spec"]["suspend"]
        if not suspended and "startTime" not in status:
            status["startTime"] = now
        due, verdict = self._verdict(job, status, now)
        if verdict or suspended:
            for pod in active:
                self.drop_pod(job, pod, _SOURCE)
            active = []
        else:
            active += self._fill(job, active, status)
        conditions = _told(job, verdict, now)
        if suspended:
            status.pop("startTime", None)
        if verdict and verdict[-1]["type"] == "Complete":
            status["completionTime"] = now
            self.record(_SOURCE, job, "Completed", "Job completed")
        counts = {"active": len(active), "ready": sum(is_ready(pod) for pod in active)}
        status = {key: value for key, value in status.items() if key not in counts}
        status |= {key: value for key, value in counts.items() if value or key == "ready"}
        if conditions:
            status["conditions"] = conditions
        status.update(terminating=sum(is_leaving(pod) and not has_ended(pod) for pod in mine))
        status["uncountedTerminatedPods"] = {}
        self.set_status("jobs", job, status)
        return due

    def _count(self, job: Obj, pod: Obj, status: dict[str, Any]) -> None:
        """Take note of an ended pod, and let it go."""
        metadata = pod["metadata"]
        rest = [name for name in metadata["finalizers"] if name != _FINALIZER]
        body = {"metadata": {"finalizers": rest or None}}
        self.api.patch("pods", metadata["name"], body, metadata["namespace"])
        if pod["status"].get("phase") != "Succeeded":
            status["failed"] = status.get("failed", 0) + 1
            return
        index = _index_of(pod)
        if job["spec"]["completionMode"] == "Indexed":
            done = bits.parse_list(status.get("completedIndexes", "")) | (1 << index)
            status["completedIndexes"] = bits.format_list(done)
            status["succeeded"] = done.bit_count()
        else:
            status["succeeded"] = status.get("succeeded", 0) + 1

    def _verdict(self, job: Obj, status: Obj, now: str) -> tuple[list[float], list[Obj]]:
        """Conditions of a job that has ended, or when its time is over."""
        spec, succeeded = job["spec"], status.get("succeeded", 0)
        if succeeded and succeeded >= spec.get("completions", 1):
            text = "Reached expected number of succeeded pods"
            names = ("SuccessCriteriaMet", "Complete")
            return [], [_condition(name, "CompletionsReached", text) for name in names]
        if status.get("failed", 0) > spec["backoffLimit"]:
            text = "Job has reached the specified backoff limit"
            return [], self._failed(job, "BackoffLimitExceeded", text)
        limit = spec.get("activeDeadlineSeconds")
        if limit is None or "startTime" not in status:
            return [], []
        left = seconds_until(moment(status["startTime"]) + timedelta(seconds=limit), moment(now))
        if left:
            return [left], []
        return [], self._failed(
            job, "DeadlineExceeded", "Job was active longer than specified deadline"
        )

    def _failed(self, job: Obj, reason: str, text: str) -> list[Obj]:
        self.record(_SOURCE, job, reason, text)
        return [_condition(name, reason, text) for name in ("FailureTarget", "Failed")]

    def _fill(self, job: Obj, active: list[Obj], status: Obj) -> list[Obj]:
        """Pods that are missing."""
        spec = job["spec"]
        wanted = spec["parallelism"]
        if "completions" in spec:
            wanted = min(wanted, spec["completions"] - status.get("succeeded", 0))
        elif status.get("succeeded"):
            wanted = 0  # the first success ends the work: no new ones
        made: list[Obj] = []
        if spec["completionMode"] != "Indexed":
            for _ in range(wanted - len(active)):
                made.append(self.make_pod(job, _SOURCE, finalizers=[_FINALIZER]))  # noqa: PERF401
            return made
        taken = bits.parse_list(status.get("completedIndexes", ""))
        for pod in active:
            taken |= 1 << _index_of(pod)
        free = (index for index in range(spec["completions"]) if not taken >> index & 1)
        for index in list(free)[: max(wanted - len(active), 0)]:
            mark = {_INDEX: str(index)}
            made.append(
                self.make_pod(
                    job, _SOURCE, labels=mark, annotations=mark, finalizers=[_FINALIZER],
                    generateName=f"{job['metadata']['name']}-{index}-",
                )
            )  # fmt: skip
        return made

    def _after(self, job: Obj) -> list[float]:
        """A job that has ended goes when its time is over."""
        patience = job["spec"].get("ttlSecondsAfterFinished")
        if patience is None or is_leaving(job):
            return []
        ended = next(
            one["lastTransitionTime"]
            for one in job["status"]["conditions"]
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        )
        due = moment(ended) + timedelta(seconds=patience)
        left = seconds_until(due, moment(self.api.now()))
        if left:
            return [left]
        self.delete("jobs", job, propagation="Foreground")
        return []


def _says(job: Obj, kind: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def _condition(kind: str, reason: str, message: str, *, holds: bool = True) -> Obj:
    return {"type": kind, "status": str(holds), "reason": reason, "message": message}


def _told(job: Obj, verdict: list[Obj], now: str) -> list[Obj]:
    """The conditions, with a verdict, and whether it is suspended."""
    news = list(verdict)
    suspended = job["spec"]["suspend"]
    if suspended != _says(job, "Suspended"):
        what = "suspended" if suspended else "resumed"
        news.append(_condition("Suspended", f"Job{what.title()}", f"Job {what}", holds=suspended))
    out = list((job.get("status") or {}).get("conditions") or ())
    for one in news:
        out = with_condition(out, one, lastProbeTime=now, lastTransitionTime=now)
    return out


def _index_of(pod: Obj) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(_INDEX, 0))
