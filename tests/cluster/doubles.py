"""Real kubelets and their simulated doubles, held against each other pod by pod.

Each real node has a double: a simulated kubelet on the same hardware, with the same configuration
and release. Both get the same random pods. Before a pod is admitted its fate is predicted from what
the double holds; afterwards real kubelet, prediction and double must agree on verdict and reason,
CPU by CPU and byte by byte, and on all that the kubelet tells in files and over its socket.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rte import errors, placement, sysfs
from rte.k8s import podspec
from rte.placement.kubelet import outcome
from rte.sim.apiserver import API
from rte.sim.kubelet import Kubelet
from tests.cluster import pods, processes, random_pods
from tests.cluster.pairs import Pair, asked, listed, pool_of, told, verdict
from tests.cluster.processes import ClusterError
from tests.cluster.test_differential_api import comparable, unlike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rte.model.pod import Pod
    from rte.placement import Admission
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

_BREAKS = {outcome.KUBELET_HANGS, outcome.KUBELET_PANICS}


class Doubles:
    """All pairs of a test, fed with the same kinds of pods."""

    def __init__(self, cluster: Cluster, pairs: Sequence[Pair], kinds: random_pods.Kinds) -> None:
        self.cluster = cluster
        self.pairs = pairs
        self.kinds = kinds
        self.api = API()
        self.runner = asyncio.Runner()

    @property
    def agreeing(self) -> list[Pair]:
        """Pairs without a difference so far whose kubelets run."""
        return [pair for pair in self.pairs if not pair.differences and not pair.start_error]

    def round(self, number: int) -> None:
        """One more pod for each node, after some others have gone."""
        self._let_go()
        arrived = [(pair, *self._arrive(pair, number)) for pair in self.agreeing]
        for pair, sent, created in arrived:
            self._judge(pair, sent, created)
        for pair, *_ in arrived:
            self._compare(pair, f"after {number}")

    def restart(self) -> None:
        """All kubelets start again on their own files; what becomes of their pods is compared.

        Pods with devices end before: whether the device plugins are back when the pods are admitted
        again is a matter of chance, and until then the device manager has no opinion on zones, and
        no devices for init containers that have ended. Kubelets of which the prediction says that
        chance decides whether they start take no part from here on.
        """
        self._end(
            [
                (pair, name)
                for pair in self.agreeing
                for name, pod in sorted(pair.alive.items())
                if _asks_for_devices(pod)
            ]
        )
        for pair in self.agreeing:
            if placement.restart(pair.double.state, ()).start_doubtful:
                pair.counts.update(starts_left_to_chance=1)
                pair.start_error = "left to chance"
        pairs = self.agreeing
        before = {pair.real.name: pair.real.heartbeat() for pair in pairs}
        for pair in pairs:
            pair.real.stop_kubelet()
            pair.real.start_kubelet()
            pair.refusals = len(pair.double.refusals)
            try:
                self.runner.run(pair.double.restart())
            except errors.KubeletStartError as error:
                pair.start_error = error.text
        for pair in pairs:
            if pair.start_error:
                self._expect_start_error(pair)
                continue
            pair.real.wait_ready(60, after=before[pair.real.name])
            self._wait_devices(pair.real)
        for pair in pairs:
            if not pair.start_error:
                self._compare_fates(pair)

    def _expect_start_error(self, pair: Pair) -> None:
        """The real kubelet ends with the double's words; neither takes part any more."""
        node, words = pair.real, pair.start_error.partition(": ")[2]
        try:
            processes.wait_until(
                lambda: not self.cluster.pids(f"{node.name}/kubelet"), 30, f"end of {node.name}"
            )
        except ClusterError as error:
            pair.differences.append(f"{error}; its double did not start: {pair.start_error}")
            return
        pair.counts.update(start_errors=1)
        if words not in node.log("kubelet"):
            pair.differences.append(
                f"{node.name} did not start, for another reason than {words!r}:\n"
                + processes.tail(node.kubelet_log)
            )

    def _compare_fates(self, pair: Pair) -> None:
        """What became of the pods that ran when the kubelets ended: a refused one is stopped, and
        only an event tells why.
        """
        refused = dict(pair.double.refusals[pair.refusals :])
        for name, pod in sorted(pair.alive.items()):
            pair.counts.update(restarted=1, refused_at_restart=name in refused)
            if name not in refused:
                continue
            del pair.alive[name]
            self._settle(name, _has_ended)
            try:
                self.cluster.wait_pod(pod, _has_ended, seconds=40)
            except ClusterError as error:
                pair.differences.append(f"{error}; its double refused it: {refused[name]}")
                continue
            if refused[name] not in (reasons := self._warnings(pod)):
                pair.differences.append(f"{name}: real {reasons}, double {refused[name]}")

    def _warnings(self, pod: Object) -> list[str]:
        """Reasons of the events that warn of a pod."""
        selector = f"involvedObject.uid={pod['metadata']['uid']},type=Warning"
        path = "/api/v1/namespaces/default/events"
        found = self.cluster.api.get(path, fieldSelector=selector)["items"]
        return [event["reason"] for event in found]

    def _wait_devices(self, node: Node) -> None:
        """Wait until the device plugins are back."""
        counts = {name: str(len(listed)) for name, listed in node.devices().items()}
        self.cluster.api.wait(
            "/api/v1/nodes", node.name,
            lambda obj: obj is not None and counts.items() <= obj["status"]["allocatable"].items(),
            seconds=30,
        )  # fmt: skip

    def _let_go(self) -> None:
        """Some pods of crowded nodes end."""
        self._end(
            [
                (pair, pair.chooser.choice(sorted(pair.alive)))
                for pair in self.agreeing
                if len(pair.alive) > 4 and pair.chooser.random() < 0.6
            ]
        )

    def _end(self, leaving: Sequence[tuple[Pair, str]]) -> None:
        """Delete pods, and wait until both kubelets have let go of them."""
        gone = [pair.alive.pop(name) for pair, name in leaving]
        for pod in gone:
            self.cluster.api.delete(pods.path(pod))
            self.api.delete("pods", pod["metadata"]["name"], "default")
        for pod in gone:
            self.cluster.wait_pod(pod, lambda obj: obj is None)
            self._settle(pod["metadata"]["name"], lambda obj: obj is None)

    def _arrive(self, pair: Pair, number: int) -> tuple[Object, Object]:
        """Create a pod that the real kubelet will survive, and that will not wait for devices when
        it starts; as sent and as stored.
        """
        name = f"{pair.real.name}-p{number}"
        while True:
            pod = random_pods.draw(pair.chooser, self.kinds, name=name, node=pair.real.name)
            predicted = self._predict(pair, podspec.parse_pod(pod))
            if predicted.reason in _BREAKS or _starves(predicted, podspec.parse_pod(pod)):
                continue
            return pod, self.cluster.create_pod(pod)

    def _predict(self, pair: Pair, pod: Pod) -> Admission:
        active = frozenset(uid for uid, name in pair.names.items() if name in pair.alive)
        return placement.admit(placement.settle(pair.double.state, active), pod)

    def _judge(self, pair: Pair, sent: Object, created: Object) -> None:
        """Hold prediction and double against the real kubelet's answer."""
        name = created["metadata"]["name"]
        predicted = self._predict(pair, podspec.parse_pod(created))
        real = self.cluster.wait_pod(created, told)
        pair.follow(real)
        stored = self.api.create("pods", sent, "default")
        pair.names |= {obj["metadata"]["uid"]: name for obj in (created, stored)}
        self._settle(name, told)
        double = self.api.get("pods", name, "default")
        refused = real["status"]["phase"] == "Failed"
        pair.counts.update(pods=1, refused=refused, uncertain=predicted.verdict == "uncertain")
        found = list(unlike(_kept(created), _kept(stored)))
        if verdict(real) != verdict(double):
            found.append(f"    real {verdict(real)}, double {verdict(double)}")
        expected = (predicted.verdict, predicted.reason)
        got = ("admitted", "") if pair.admitted else ("refused", real["status"].get("reason"))
        if predicted.verdict != "uncertain" and expected != got:
            found.append(f"    real {got}, predicted {expected}: {predicted.message}")
        if not refused and not found:
            pair.alive[name] = self.cluster.wait_pod(real, _all_started)
            self._settle(name, _all_started)
        pair.history.append(f"{name}: {verdict(real)} {asked(created)}")
        if found:
            pair.differences += [*pair.history[-3:], *found]

    def _compare(self, pair: Pair, when: str) -> None:
        if pair.differences:
            return
        real_tells = pair.real_tells(self.runner.run(listed(pair.real)))
        double_tells = pair.double_tells()
        found = [
            f"{name} {when} has ended, its double runs: {self._warnings(pod)} {asked(pod)}"
            for name, pod in sorted(pair.alive.items())
            if _has_ended(self.cluster.api.get(pods.path(pod)))
        ]
        found += [
            f"{pair.real.name} {when}: {part}:\n    real   {real_tells[part]}\n"
            f"    double {double_tells[part]}"
            for part in real_tells
            if real_tells[part] != double_tells[part]
        ]
        if found:
            pair.differences += [*pair.history[-3:], *found]

    def _settle(self, name: str, done: Callable[[Object | None], bool]) -> None:
        """Let the doubles work until a pod is as wanted."""

        async def work() -> None:
            async with asyncio.timeout(5):
                while not done(self.api.store.get("pods", ("default", name))):
                    await asyncio.sleep(0)

        self.runner.run(work())


@contextmanager
def doubles(
    cluster: Cluster, nodes: Sequence[Node], kinds: random_pods.Kinds, seed: int
) -> Iterator[Doubles]:
    """Doubles of nodes while they run."""
    pairs = []
    for node in nodes:
        pools = {name: pool_of(devices) for name, devices in node.devices().items()}
        pairs.append(Pair(node, random.Random(f"{seed} {node.name}"), pools))
    both = Doubles(cluster, pairs, kinds)
    with both.runner:
        try:
            for pair in pairs:
                node = pair.real
                pair.double = Kubelet(
                    both.api,
                    node.name,
                    sysfs.read_machine(node.machine / "sys", node.machine / "proc"),
                    node.config,
                    devices=pair.devices,
                    version=f"v{node.version}",
                    execute=pair.execute,
                )
                both.runner.run(pair.double.start())
            yield both
        finally:
            for pair in pairs:
                both.runner.run(pair.double.stop())


def _asks_for_devices(pod: Object) -> bool:
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    return any("/" in name for item in containers for name in item["resources"].get("limits", ()))


def _has_ended(pod: Object | None) -> bool:
    return pod is not None and pod["status"].get("phase") in ("Succeeded", "Failed")


def _all_started(pod: Object | None) -> bool:
    """Whether all containers run: then the memory of ordinary init containers is free again."""
    if pod is None or pod["status"].get("phase") != "Running":
        return False
    return all("running" in item["state"] for item in pod["status"]["containerStatuses"])


def _kept(stored: Object) -> Object:
    """What both API servers must have made of a pod."""
    spec = stored["spec"]
    parts = {key: spec.get(key) for key in ("containers", "initContainers", "resources")}
    return comparable(parts | {"qosClass": stored["status"]["qosClass"]})


def _starves(predicted: Admission, pod: Pod) -> bool:
    """Whether a container would find no devices at its start, and try again for ever."""
    if not predicted.admitted:
        return False
    return bool(placement.start_containers(predicted.state, pod, predicted.hints).failed)
