"""The steps of a workload on a real API server (test/integration/scheduler_perf/executor.go)."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.perf.suites import rendered
from bench.scheduler_pace import each
from rte import errors
from rte.kube.resources import NODES, PODS, Resource
from rte.kube.watch import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.perf.suites import Workload
    from rte.kube.client import Client

_PVS = Resource("", "v1", "persistentvolumes")
_PVCS = Resource("", "v1", "persistentvolumeclaims", namespaced=True)
_NAMESPACES = Resource("", "v1", "namespaces")
_CSINODES = Resource("storage.k8s.io", "v1", "csinodes")
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
#: The plain pod of runners.go.
_PLAIN_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.1",
                "ports": [{"containerPort": 80}],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                },
            }
        ]
    },
}
_PLAIN_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"generateName": "node-"},
    "status": {
        "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
        "allocatable": {"pods": "110", "cpu": "4", "memory": "32Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class StuckError(Exception):
    """A step did not end in time."""


@dataclass
class Seen:
    """A pod by the watch; moments of a monotonic clock."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    created: float
    bound: float = 0.0
    attempted: bool = False


@dataclass
class Measured:
    """Pods whose binds are measured; ``since`` is when the first of them could be bound."""

    namespaces: Sequence[str]
    labels: Mapping[str, str]
    since: float
    before: set[str]
    pods: list[Seen] = field(default_factory=list)


class Play:
    """One workload in the hands of one scheduler.

    Args:
        hold: around the creation of pods that are measured.
        patience: seconds that a step may wait.
    """

    def __init__(
        self,
        client: Client,
        work: Workload,
        hold: Callable[[], AbstractContextManager[None]],
        patience: float,
    ) -> None:
        self._client, self._work, self._hold, self._patience = client, work, hold, patience
        self._pods: dict[str, Seen] = {}
        #: Pods by namespace that nobody has waited for yet.
        self._awaited: Counter[str] = Counter()
        self._namespaces: set[str] = set()
        self._measured: list[Measured] = []
        self._open: Measured | None = None
        self._resources: dict[tuple[str, str], Resource] = {}
        self._index = 0
        self._nodes = itertools.count()

    async def run(self) -> None:
        """All steps in turn.

        Raises:
            StuckError: one of them did not end in time.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks = [group.create_task(self._follow())]
            self._tasks = tasks
            try:
                for index, step in enumerate(self._work.steps):
                    self._index = index
                    await getattr(self, f"step_{step['opcode']}")(step)
            finally:
                self._close()
                for task in tasks:
                    task.cancel()

    def line(self) -> dict[str, Any]:
        """What was measured."""
        pods = [(pod, one.since) for one in self._measured for pod in one.pods]
        waits = sorted(pod.bound - max(pod.created, since) for pod, since in pods if pod.bound)
        spent = sum(
            max((pod.bound for pod in one.pods if pod.bound), default=one.since) - one.since
            for one in self._measured
        )
        return {
            "measured": len(pods),
            "bound": len(waits),
            "pods_per_s": round(len(waits) / spent, 1) if spent else 0.0,
            "p99_s": round(waits[int(0.99 * (len(waits) - 1))], 3) if waits else None,
        }

    # -- steps

    async def step_createNodes(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        count = step["count"]
        if "nodeTemplatePath" in step:
            bodies = self._rendered(step["nodeTemplatePath"], step, count)
        else:
            bodies = [copy.deepcopy(_PLAIN_NODE) for _ in range(count)]
        driver: dict[str, Any] = step.get("nodeAllocatableStrategy") or {}
        labels = step.get("labelNodePrepareStrategy") or {}
        unique = (step.get("uniqueNodeLabelStrategy") or {}).get("labelKey")
        values = labels.get("labelValues") or [labels.get("labelValue", "")]

        async def add(item: tuple[int, dict[str, Any]]) -> None:
            number, body = item
            meta = body["metadata"]
            name = meta.setdefault(
                "name", f"{meta.pop('generateName', 'node-')}{next(self._nodes)}"
            )
            meta.pop("generateName", None)
            own = meta.setdefault("labels", {})
            own["kubernetes.io/hostname"] = name
            if labels:
                own[labels["labelKey"]] = values[number % len(values)]
            if unique:
                own[unique] = name
            status = body["status"]
            status["allocatable"] = {
                **status["capacity"],
                **(status.get("allocatable") or {}),
                **(driver.get("nodeAllocatable") or {}),
            }
            await self._client.create(NODES.path(), body)
            if driver:
                await self._client.create(_CSINODES.path(), _csi_node(name, driver))

        await each(enumerate(bodies), add)

    async def step_createNamespaces(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        body: dict[str, Any] = {"metadata": {}}
        if "namespaceTemplatePath" in step:
            (body,) = rendered(self._work.path(step["namespaceTemplatePath"]), [{}])
        for number in range(step["count"]):
            await self._namespace(f"{step['prefix']}-{number}", body)

    async def step_createPods(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        namespace = step.get("namespace") or f"namespace-{self._index}"
        await self._namespace(namespace)
        if step.get("steadyState"):
            await self._steadily(namespace, step)
            return
        bodies = self._pod_bodies(step)
        measures = bool(step.get("collectMetrics"))
        with self._hold() if measures else contextlib.nullcontext():
            if measures:
                self._start([namespace], {})
            await each(enumerate(bodies), lambda item: self._create_pod(namespace, step, *item))
            if self._open is not None and measures:
                await self._until(lambda: self._all_seen(len(bodies)), "seeing the pods")
        if self._open is not None and measures and self._held():
            self._open.since = time.monotonic()
        self._awaited[namespace] += len(bodies)
        if not step.get("skipWaitToCompletion"):
            await self._bound(namespace, len(bodies), {})
            self._awaited[namespace] = 0
        if measures:
            self._close()

    async def step_createPodSets(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        for number in range(step["count"]):
            name = f"{step['namespacePrefix']}-{number}"
            await self.step_createPods({**step["createPodsOp"], "namespace": name})

    async def step_deletePods(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        namespace, wanted = step["namespace"], step.get("labelSelector") or {}
        names = [pod.name for pod in self._pods.values() if _matches(pod, [namespace], wanted)]
        pause = 1 / step["deletePodsPerSecond"] if step.get("deletePodsPerSecond") else 0.0

        async def delete() -> None:
            for name in names:
                await self._client.delete(PODS.path(name, namespace=namespace))
                await asyncio.sleep(pause)

        if step.get("skipWaitToCompletion"):
            self._tasks.append(self._group.create_task(delete()))
        else:
            await delete()

    async def step_churn(self, step: Mapping[str, Any]) -> None:
        namespace = step.get("namespace") or f"namespace-{self._index}"
        await self._namespace(namespace)
        bodies = [rendered(self._work.path(path), [{}])[0] for path in step["templatePaths"]]
        number = step.get("number") or 0
        pause = (step.get("intervalMilliseconds") or 500) / 1000
        recreate = step["mode"] == "recreate"

        async def churn() -> None:
            there: dict[tuple[int, int], str] = {}
            for turn in itertools.count() if recreate or not number else range(number):
                await asyncio.sleep(pause)
                for place, body in enumerate(bodies):
                    slot = (place, turn % number if recreate else turn)
                    path = await self._path(body, namespace)
                    with contextlib.suppress(errors.KubeError):
                        if recreate and slot in there:
                            await self._client.delete(f"{path}/{there.pop(slot)}")
                        else:
                            made = await self._client.create(path, body)
                            there[slot] = made["metadata"]["name"]

        self._tasks.append(self._group.create_task(churn()))

    async def step_barrier(self, step: Mapping[str, Any]) -> None:
        wanted = step.get("labelSelector") or {}
        spaces = step.get("namespaces") or [name for name, n in self._awaited.items() if n]
        attempted = step.get("stageRequirement") == "Attempted"
        for namespace in spaces:
            count = self._awaited[namespace]
            if attempted:
                await self._until(
                    lambda ns=namespace, n=count: self._count(ns, wanted, attempted=True) >= n,
                    f"{count} pods of {namespace} to be attempted",
                )
            else:
                await self._bound(namespace, count, wanted)
                self._awaited[namespace] = 0

    async def step_sleep(self, step: Mapping[str, Any]) -> None:
        await asyncio.sleep(_seconds(step["duration"]))

    async def step_createAny(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        if step.get("namespace"):
            await self._namespace(step["namespace"])
        for body in self._rendered(step["templatePath"], step, step.get("count", 1)):
            await self._client.create(await self._path(body, step.get("namespace", "")), body)

    async def step_createResourceClaims(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        await self.step_createAny(step)

    async def step_createPodGroups(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        await self.step_createAny(step)

    async def step_updateAny(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        pause = 1 / step["updatePerSecond"] if step.get("updatePerSecond") else 0.0
        for body in self._rendered(step["templatePath"], step, step.get("count", 1)):
            path = (
                await self._path(body, step.get("namespace", "")) + f"/{body['metadata']['name']}"
            )
            for sub in step.get("subresources") or [""]:
                await self._client.update(f"{path}/{sub}".rstrip("/"), copy.deepcopy(body))
            with contextlib.suppress(errors.KubeError):
                await self._client.update(f"{path}/status", body)
            await asyncio.sleep(pause)

    async def step_startCollectingMetrics(self, step: Mapping[str, Any]) -> None:  # noqa: N802
        self._start(step["namespaces"], step.get("labelSelector") or {})

    async def step_stopCollectingMetrics(self, _step: Mapping[str, Any]) -> None:  # noqa: N802
        self._close()

    # -- pods

    async def _follow(self) -> None:
        events = watch(self._client, PODS.path())
        async with contextlib.aclosing(events):
            async for event in events:
                meta = event.object.get("metadata", {})
                uid, now = meta.get("uid", ""), time.monotonic()
                if event.kind == "DELETED":
                    pod = self._pods.get(uid)
                    if pod is not None and not pod.bound and self._open is None:
                        del self._pods[uid]
                elif event.kind in ("ADDED", "MODIFIED"):
                    pod = self._pods.setdefault(
                        uid, Seen(meta["namespace"], meta["name"], meta.get("labels") or {}, now)
                    )
                    pod.labels = meta.get("labels") or {}
                    if not pod.bound and event.object["spec"].get("nodeName"):
                        pod.bound = now
                    conditions = event.object.get("status", {}).get("conditions") or ()
                    pod.attempted |= any(each["type"] == "PodScheduled" for each in conditions)

    def _start(self, namespaces: Sequence[str], labels: Mapping[str, str]) -> None:
        self._open = Measured(namespaces, labels, time.monotonic(), set(self._pods))

    def _close(self) -> None:
        one, self._open = self._open, None
        if one is not None:
            one.pods = [
                pod
                for uid, pod in self._pods.items()
                if _matches(pod, one.namespaces, one.labels)
                and (uid not in one.before or pod.bound > one.since)
            ]
            self._measured.append(one)

    def _all_seen(self, count: int) -> bool:
        one = self._open
        assert one is not None
        return sum(_matches(pod, one.namespaces, {}) for pod in self._pods.values()) >= count

    def _held(self) -> bool:
        return not isinstance(self._hold(), contextlib.nullcontext)

    def _count(self, namespace: str, labels: Mapping[str, str], *, attempted: bool = False) -> int:
        return sum(
            bool(pod.bound or (attempted and pod.attempted))
            for pod in self._pods.values()
            if _matches(pod, [namespace], labels)
        )

    async def _bound(self, namespace: str, count: int, labels: Mapping[str, str]) -> None:
        await self._until(
            lambda: self._count(namespace, labels) >= count,
            f"{count} pods of {namespace} to be bound",
        )

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._patience
        while not reached():
            if time.monotonic() > deadline:
                raise StuckError(f"gave up waiting for {what}")
            await asyncio.sleep(0.1)

    def _pod_bodies(self, step: Mapping[str, Any], count: int = 0) -> list[dict[str, Any]]:
        template = step.get("podTemplatePath") or self._work.template
        count = count or step["count"]
        if not template:
            return [copy.deepcopy(_PLAIN_POD) for _ in range(count)]
        bodies = self._rendered(template, step, count)
        batch = step.get("signatureBatchSize") or 1
        for number, body in enumerate(bodies):
            labels = body["metadata"].setdefault("labels", {})
            labels["signature"] = f"signature-label-{number // batch}"
        return bodies

    async def _create_pod(
        self, namespace: str, step: Mapping[str, Any], number: int, body: dict[str, Any]
    ) -> None:
        if "persistentVolumeClaimTemplatePath" in step:
            claim = f"pvc-{number}"
            await self._volume(namespace, step, number, claim)
            body["spec"]["volumes"] = [
                {"name": "vol", "persistentVolumeClaim": {"claimName": claim}}
            ]
        await self._client.create(PODS.path(namespace=namespace), body)

    async def _volume(
        self, namespace: str, step: Mapping[str, Any], number: int, claim: str
    ) -> None:
        """A volume and a claim that are bound to each other (CreatePodWithPersistentVolume)."""
        (pv,) = rendered(self._work.path(step["persistentVolumeTemplatePath"]), [{}])
        (pvc,) = rendered(self._work.path(step["persistentVolumeClaimTemplatePath"]), [{}])
        name = f"{namespace}-vol-{number}"
        pvc.setdefault("metadata", {})["name"] = claim
        pvc["spec"]["volumeName"] = name
        made = await self._client.create(_PVCS.path(namespace=namespace), pvc)
        phase = {"status": {"phase": "Bound"}}
        await self._client.patch(
            _PVCS.path(claim, namespace=namespace, subresource="status"), phase
        )
        pv.setdefault("metadata", {})["name"] = name
        if "csi" in pv["spec"]:
            pv["spec"]["csi"]["volumeHandle"] = name
        elif "awsElasticBlockStore" in pv["spec"]:
            pv["spec"]["awsElasticBlockStore"]["volumeID"] = f"vol-{number}"
        pv["spec"]["claimRef"] = {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace,
            "name": claim, "uid": made["metadata"]["uid"],
        }  # fmt: skip
        await self._client.create(_PVS.path(), pv)
        await self._client.patch(_PVS.path(name, subresource="status"), phase)

    async def _steadily(self, namespace: str, step: Mapping[str, Any]) -> None:
        """Each pod that is bound is deleted, and another one created, for a while."""
        end = time.monotonic() + _seconds(step["duration"])
        done: set[str] = set()
        if step.get("collectMetrics"):
            self._start([namespace], {})
        for number, body in enumerate(self._pod_bodies(step)):
            await self._create_pod(namespace, step, number, body)
        while time.monotonic() < end:
            bound = [
                (uid, pod.name)
                for uid, pod in self._pods.items()
                if pod.bound and uid not in done and pod.namespace == namespace
            ]
            done.update(uid for uid, _ in bound)

            async def again(item: tuple[str, str]) -> None:
                path = PODS.path(item[1], namespace=namespace)
                await self._client.delete(path, {"gracePeriodSeconds": 0})
                (body,) = self._pod_bodies(step, 1)
                await self._create_pod(namespace, step, 0, body)

            await each(bound, again)
            await asyncio.sleep(0.01)
        if step.get("collectMetrics"):
            self._close()

    # -- objects

    def _rendered(self, path: str, step: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
        more = step.get("templateParams") or {}
        envs = [{**more, "Index": number, "Count": count} for number in range(count)]
        return rendered(self._work.path(path), envs)

    async def _namespace(self, name: str, body: Mapping[str, Any] | None = None) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            whole = copy.deepcopy(dict(body or {"metadata": {}}))
            whole.setdefault("metadata", {})["name"] = name
            await self._client.create(_NAMESPACES.path(), whole)

    async def _path(self, body: Mapping[str, Any], namespace: str) -> str:
        """The collection of an object of any kind, by discovery."""
        group, _, version = body["apiVersion"].rpartition("/")
        if (body["apiVersion"], body["kind"]) not in self._resources:
            root = f"/apis/{body['apiVersion']}" if group else f"/api/{version}"
            for item in (await self._client.get(root))["resources"]:
                if "/" not in item["name"]:
                    self._resources[body["apiVersion"], item["kind"]] = Resource(
                        group, version, item["name"], namespaced=item["namespaced"]
                    )
        return self._resources[body["apiVersion"], body["kind"]].path(namespace=namespace)


def _matches(pod: Seen, namespaces: Sequence[str], labels: Mapping[str, str]) -> bool:
    return pod.namespace in namespaces and labels.items() <= pod.labels.items()


def _csi_node(name: str, strategy: Mapping[str, Any]) -> dict[str, Any]:
    drivers = strategy.get("csiNodeAllocatable") or {}
    return {
        "metadata": {
            "name": name,
            "annotations": {_MIGRATED: ",".join(strategy.get("migratedPlugins") or ())},
        },
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": name, "allocatable": amounts}
                for driver, amounts in drivers.items()
            ]
        },
    }


def _seconds(text: str) -> float:
    """Go's durations, of one unit: ``10s``, ``500ms``, ``1m``."""
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(f"no duration: {text}")
