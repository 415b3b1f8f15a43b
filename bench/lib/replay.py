"""Run a list of jobs on a real cluster: create their pods, re-create refused ones, end them."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.lib.rejections import Arrival, Rejection
from rte import errors
from tests.cluster import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.lib.jobs import Job, Placer
    from tests.cluster.api import Api, Object

PODS = "/api/v1/namespaces/default/pods"

#: Who re-creates a refused pod: a ReplicaSet after 1 s, or the Job controller after 10, 20, 40 s.
Owner = Literal["replicaset", "job"]


@dataclass
class Progress:
    """What became of one job; times are seconds since the start."""

    attempt: int = 0
    created: float | None = None
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    node: str = ""


@dataclass
class Outcome:
    """What became of a list."""

    jobs: Sequence[Job]
    progress: Sequence[Progress]
    seconds: float
    rejections: Sequence[Rejection] = ()
    arrivals: Sequence[Arrival] = ()

    def done(self) -> int:
        """Jobs that ran to their end."""
        return sum(each.ended is not None for each in self.progress)

    def waits(self) -> list[float]:
        """Seconds from a job's first creation to Running, ascending; foreign ones left out."""
        return sorted(
            each.running - each.created
            for job, each in zip(self.jobs, self.progress, strict=True)
            if each.running is not None and each.created is not None and job.placer != "foreign"
        )

    def starting_s(self) -> dict[int, float]:
        """Seconds from a job's bind to Running: the kubelet's, by the job's number."""
        return {
            job.number: each.running - each.bound
            for job, each in zip(self.jobs, self.progress, strict=True)
            if each.running is not None and each.bound is not None
        }

    def saturated_efficiency(self, cpus: float) -> float | None:
        """Share of the CPUs that ran jobs while some job was waiting for a place."""
        starts = [each.running for each in self.progress if each.running is not None]
        if not starts:
            return None
        first, last = min(starts), max(starts)
        unstarted = [each for each in self.progress if each.created and each.running is None]
        if unstarted:
            last = self.seconds
        if last <= first:
            return None
        used = 0.0
        for job, each in zip(self.jobs, self.progress, strict=True):
            if each.running is not None:
                end = each.ended if each.ended is not None else self.seconds
                used += job.cpus * max(0.0, min(end, last) - each.running)
        return used / (cpus * (last - first))


class Replay:
    """One run of a list. Everything is decided in one thread; only requests are made in others.

    ``started`` is told of each job's pod when it runs.
    """

    def __init__(
        self,
        api: Api,
        jobs: Sequence[Job],
        schedulers: Mapping[Placer, str],
        owner: Owner,
        started: Callable[[Job, Object], None] = lambda _job, _pod: None,
    ) -> None:
        self._api = api
        self._started = started
        self._jobs = {job.number: job for job in jobs}
        self._progress = {job.number: Progress() for job in jobs}
        self._schedulers = schedulers
        self._owner = owner
        self._rejections: list[Rejection] = []
        self._arrivals: dict[str, Arrival] = {}
        self._inbox: queue.Queue[tuple[float, Object]] = queue.Queue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = 0
        self._start = 0.0
        self._over = threading.Event()
        self._gap = False

    def run(self, limit: float) -> Outcome:
        """Run until every job is done or ``limit`` seconds are over; leaves no pod behind."""
        version = str(self._api.get(PODS)["metadata"]["resourceVersion"])
        watcher = threading.Thread(target=self._watch, args=(version,), daemon=True)
        watcher.start()
        # One thread creates, so that pods arrive in the list's order.
        with ThreadPoolExecutor(1) as self._creations, ThreadPoolExecutor(4) as self._endings:
            self._start = time.monotonic()
            for number, job in self._jobs.items():
                self._after(job.at - self._now(), self._creator(number))
            while self._now() < limit and any(
                each.ended is None for each in self._progress.values()
            ):
                self._step(limit)
            seconds = self._now()
        self._over.set()
        self._api.delete(PODS, grace=0)
        watcher.join(timeout=10)
        return Outcome(
            list(self._jobs.values()),
            list(self._progress.values()),
            seconds,
            self._rejections,
            list(self._arrivals.values()),
        )

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        self._ticket += 1
        heapq.heappush(self._timers, (self._now() + delay, self._ticket, action))

    def _step(self, limit: float) -> None:
        while self._timers and self._timers[0][0] <= self._now():
            heapq.heappop(self._timers)[2]()
        due = self._timers[0][0] if self._timers else limit
        try:
            at, pod = self._inbox.get(timeout=max(0.0, min(due, limit) - self._now()))
        except queue.Empty:
            return
        self._seen(at, pod)

    def _creator(self, number: int) -> Callable[[], None]:
        def create() -> None:
            job, each = self._jobs[number], self._progress[number]
            if each.created is None:
                each.created = self._now()
            body = job.pod(each.attempt, self._schedulers.get(job.placer, ""))
            self._creations.submit(self._create, body)

        return create

    def _create(self, body: Object) -> None:
        try:
            self._api.create(PODS, body)
        except errors.KubeError as error:
            if error.status != 409:  # an answer was lost: it is there
                self._inbox.put((self._now(), {"error": error}))

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(f"{PODS}/{name}", grace=0)
        except errors.KubeError as error:
            self._inbox.put((self._now(), {"error": error}))

    def _seen(self, at: float, pod: Object) -> None:
        if "error" in pod:
            raise pod["error"]
        number = int(pod["metadata"]["labels"]["job"])
        job, each = self._jobs[number], self._progress[number]
        name = pod["metadata"]["name"]
        arrival = self._arrival(pod, job)
        if name != f"j{number}-{each.attempt}" or each.running is not None:
            return
        if arrival is not None and each.bound is None:
            each.bound = at
        status = pod["status"]
        if status.get("phase") == "Running":
            each.running, each.node = at, pod["spec"]["nodeName"]
            self._started(job, pod)

            def end() -> None:
                each.ended = self._now()
                self._endings.submit(self._delete, name)

            self._after(job.seconds, end)
        elif status.get("phase") == "Failed" and arrival is not None:
            reason, message = status.get("reason", ""), status.get("message", "")
            self._rejections.append(Rejection(arrival=arrival, reason=reason, message=message))
            each.attempt, each.bound = each.attempt + 1, None
            delay = 10.0 * 2 ** (each.attempt - 1) if self._owner == "job" else 1.0
            create = self._creator(number)

            def again() -> None:
                self._creations.submit(self._delete, name)
                create()

            self._after(delay, again)

    def _arrival(self, pod: Object, job: Job) -> Arrival | None:
        """When the pod came to its node; None while it is on none."""
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        if node and metadata["uid"] not in self._arrivals:
            self._arrivals[metadata["uid"]] = Arrival(
                pod=metadata["name"],
                uid=metadata["uid"],
                placer=job.placer,
                node=node,
                # A first sight after a break shows a later change of the pod.
                version=None if self._gap else int(metadata["resourceVersion"]),
            )
        return self._arrivals.get(metadata["uid"])

    def _watch(self, version: str) -> None:
        """Hand every event on; begins anew from a list where the watch breaks."""
        while not self._over.is_set():
            try:
                for kind, pod in self._api.watch(
                    PODS, resource_version=version, seconds=600, labelSelector="job"
                ):
                    version = pod["metadata"]["resourceVersion"]
                    if kind != "DELETED":
                        self._inbox.put((self._now(), pod))
                    if self._over.is_set():
                        return
            except errors.KubeError as error:
                if error.status not in {0, 410, 500, 503}:
                    self._inbox.put((self._now(), {"error": error}))
                    return
                version, self._gap = "", True
                time.sleep(0.2)


def wait_until_placed(api: Api, scheduler: str, seconds: float = 60) -> None:
    """Wait until a scheduler places pods: one that asks for nothing must start and go again."""
    probe = pods.pod(scheduler=scheduler, name="ready-probe")
    api.create(PODS, probe)
    done: Any = lambda pod: pod is not None and pod["status"].get("phase") == "Running"  # noqa: E731
    try:
        api.wait(PODS, "ready-probe", done, seconds=seconds, what=f"scheduler {scheduler}")
    finally:
        api.delete(f"{PODS}/ready-probe", grace=0)
    api.wait(PODS, "ready-probe", lambda pod: pod is None, seconds=30)
