"""The agent beside koordlet, NFD's topology updater and resource-topology-exporter, all at once.

Kubelet and API server are real. The rivals write what those programs write, by the requests that
they make, as often as they do: their programs need a node of their own to stand on (cgroups, a
host's sysfs), and fight about the object in the same way here.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rte import errors
from tests.cluster import agents, processes
from tests.cluster.pods import container, pod
from tests.cluster.test_agent import (
    PLAIN,
    assert_consistent,
    kubelet_holds,
    plainly,
    published,
    reports,
    state_of,
    wait_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node
    from tests.cluster.watcher import Seen

RIVALRY_S = 300.0
#: Of koordlet's, those that differ from ours whatever happens.
KOORDLETS = {
    "node.koordinator.sh/cpu-topology": '{"detail":[]}',
    "node.koordinator.sh/pod-cpu-allocs": "null",
}
ALPHA1 = agents.NRT.replace("v1alpha2", "v1alpha1")


class Rivals:
    """What others write of a node; each works in a thread of its own."""

    def __init__(self, node: Node) -> None:
        self._node, self._api = node, node.cluster.api
        self._namespace = self._api.get("/api/v1/namespaces/default")["metadata"]
        self._previous: Object | None = None
        #: resourceVersion of what they have written -> who.
        self.written: dict[str, str] = {}

    def koordlet(self) -> None:
        """Update of an object of v1alpha1, which has no attributes; nothing where it is as wished.

        Its annotations are laid over those that are there, zones made of what is allocatable.
        """
        path = f"{ALPHA1}/{self._node.name}"
        stored = self._api.get(path)
        metadata = stored["metadata"]
        wished = {
            **stored,
            "metadata": {**metadata, "annotations": {**metadata["annotations"], **KOORDLETS}},
            "topologyPolicies": ["None"],
            "zones": [
                {
                    "name": zone["name"],
                    "type": "Node",
                    "resources": [
                        _all_free(each["name"], each["allocatable"]) for each in zone["resources"]
                    ],
                }
                for zone in stored["zones"]
            ],
        }
        wished.pop("attributes", None)
        if wished != stored:
            self._note("koordlet", self._api.request("PUT", path, wished, fieldManager="koordlet"))

    def nfd(self) -> None:
        """Get and update (v0.18), with its Namespace for an owner."""
        owner = {
            "apiVersion": "v1", "kind": "Namespace",
            "name": self._namespace["name"], "uid": self._namespace["uid"],
        }  # fmt: skip
        path = f"{agents.NRT}/{self._node.name}"
        stored = self._api.get(path) | _exporters("pfp0v001nfd")
        stored["metadata"]["ownerReferences"] = [owner]
        manager = "nfd-topology-updater"
        self._note("nfd", self._api.request("PUT", path, stored, fieldManager=manager))

    def rte(self) -> None:
        """A merge patch of what differs from its last answer; at first it reads and updates.

        So what others have changed is told by one answer and overwritten by the next patch.
        """
        path, wished = f"{agents.NRT}/{self._node.name}", _exporters("pfp0v001rte")
        if self._previous is None:
            stored = self._api.get(path) | wished
            self._previous = self._api.request("PUT", path, stored, fieldManager="rte")
        else:
            previous = self._previous
            patch = {name: each for name, each in wished.items() if previous.get(name) != each}
            self._previous = self._api.patch(path, patch, fieldManager="rte")
            if not patch:
                return
        self._note("rte", self._previous)

    def _note(self, who: str, answer: Object) -> None:
        self.written.setdefault(answer["metadata"]["resourceVersion"], who)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """As often as theirs do, but NFD, whose 60 s would be too few."""
        stop = threading.Event()

        def files() -> int:
            return (self._node.root / "cpu_manager_state").stat().st_mtime_ns

        works = [(self.koordlet, 3.0, None), (self.nfd, 20.0, files), (self.rte, 10.0, None)]
        threads = [threading.Thread(target=_repeat, args=(stop, *work)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _repeat(
    stop: threading.Event, write: Callable[[], None], every_s: float, seen: Callable[[], int] | None
) -> None:
    known, due = None, 0.0
    while not stop.wait(0.1):
        now = seen() if seen else None
        if now != known or time.monotonic() >= due:
            known, due = now, time.monotonic() + every_s
            try:
                write()
            except errors.KubeError as error:
                if error.status != 409:  # somebody else was quicker
                    raise


def _all_free(name: str, amount: str | int) -> Object:
    return {"name": name, "capacity": amount, "allocatable": amount, "available": amount}


def _exporters(fingerprint: str) -> Object:
    """Zones and attributes of another exporter, whose numbers are not ours."""
    zone = {"name": "node-0", "type": "Node", "resources": [_all_free("cpu", "3")]}
    attributes = [
        {"name": "topologyManagerPolicy", "value": "none"},
        {"name": "nodeTopologyPodsFingerprint", "value": fingerprint},
    ]
    return {"zones": [zone], "attributes": attributes}


def test_zones_stay_ours_beside_three_rivals_and_koordlet_has_koordinators_annotations(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(
        "rivals", shape="2x8,memory=16Gi", kubelet={"policy": "single-numa-node"}, devices=PLAIN
    )
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    rivals, changes, since = Rivals(node), 0, len(watcher.events)
    began = time.monotonic()
    with rivals.at_work():
        while time.monotonic() < began + RIVALRY_S:
            made = pod(container(2 + changes % 3, "1Gi"), node=node.name, name=f"p{changes}")
            uid = cluster.run_pod(made)["metadata"]["uid"]
            wait_state(watcher, lambda state, uid=uid: uid in state.admitted, since)
            held = kubelet_holds(node, {uid})
            processes.wait_until(
                lambda held=held: plainly(published(node)) == held, 30, "what the kubelet holds"
            )
            cluster.delete_pod(made)
            wait_state(watcher, lambda state: not state.holdings, len(watcher.events) - 1)
            changes += 1
            time.sleep(3)

    def is_ours(seen: Seen) -> bool:
        return seen.object["metadata"]["resourceVersion"] not in rivals.written

    def is_right(obj: Object) -> bool:
        owners = [owner["kind"] for owner in obj["metadata"]["ownerReferences"]]
        return _told(obj) == _told(_last(watcher.events, is_ours).object) and owners == ["Node"]

    processes.wait_until(
        lambda: is_right(cluster.api.get(f"{agents.NRT}/{node.name}")), 60, "our zones"
    )
    events = list(watcher.events)[since:]
    ours = [seen for seen in events if is_ours(seen)]
    theirs = [seen for seen in events if not is_ours(seen)]
    assert {rivals.written[seen.object["metadata"]["resourceVersion"]] for seen in theirs} == {
        "koordlet", "nfd", "rte",
    }  # fmt: skip

    wrong_s, overwritten = _wrong(events, is_ours)
    processes.note(
        f"{len(theirs)} writes of rivals, {overwritten} over zones or attributes, {len(ours)} of "
        f"ours for these and {changes} pods; overwritten for {wrong_s / RIVALRY_S:.1%} of the time"
    )
    for seen in events:
        assert_consistent(state_of(seen.object))  # what prediction needs nobody takes away
    # A write of ours has a reason: theirs, or a pod that came, was admitted, or went.
    assert len(ours) <= overwritten + 8 * changes + 5
    # Those of Koordinator are koordlet's once it has shown that it stays: 5 repairs in 10 minutes.
    later = events[len(events) // 2 :]
    assert all(
        seen.object["metadata"]["annotations"].items() >= KOORDLETS.items() for seen in later
    )
    assert node.log("agent").count("stop one of the two writers") == 1


def _told(obj: Object) -> tuple[Any, Any]:
    return obj["zones"], obj.get("attributes")


def _last(events: list[Seen], fits: Callable[[Seen], bool]) -> Seen:
    return next(seen for seen in reversed(events) if fits(seen))


def _wrong(events: list[Seen], is_ours: Callable[[Seen], bool]) -> tuple[float, int]:
    """For how many seconds zones or attributes were not ours, and how often they were written."""
    mine = _told(_last(events, is_ours).object)
    wrong_s, times, since = 0.0, 0, None
    for seen in events:
        if since is not None:
            wrong_s, since = wrong_s + seen.at - since, None
        if is_ours(seen):
            mine = _told(seen.object)
        elif _told(seen.object) != mine:
            times, since = times + 1, seen.at
    return wrong_s, times
