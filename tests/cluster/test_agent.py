"""The live agent on a real kubelet and a real API server."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte import nrt
from rte.kubelet import statefiles
from rte.model import bits
from tests.cluster import agents, pods, processes
from tests.cluster.pods import container, pod
from tests.cluster.test_reading import DEVICES, GPU, add_static_pod, plainly, present
from tests.cluster.watcher import Seen, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from rte.model.node import DevicePool, NodeState
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node


PLAIN = {"example.com/plain": [None]}


def reports(node: Node) -> Watcher:
    """All that is published about a node from now on."""
    return Watcher(node.cluster, agents.NRT, f"metadata.name={node.name}").start()


def state_of(obj: Object) -> NodeState:
    state = nrt.decode(obj).state
    assert state is not None
    return state


def published(node: Node) -> NodeState:
    return state_of(node.cluster.api.get(f"{agents.NRT}/{node.name}"))


def wait_state(
    watcher: Watcher, done: Callable[[NodeState], bool], since: int = 0, seconds: float = 90
) -> NodeState:
    def fits(seen: Seen) -> bool:
        return seen.kind != "DELETED" and done(state_of(seen.object))

    seen = watcher.wait(since, fits, seconds)
    assert seen is not None, "not published in time"
    return state_of(seen.object)


def assert_consistent(state: NodeState) -> None:
    """No CPU is nowhere or held twice; memory rows add up and hold what the entries say."""
    held = 0
    blocks: dict[str, int] = {}
    for containers in state.holdings.values():
        # Within a pod, app containers take over what its init containers had.
        own = 0
        for holding in containers.values():
            own |= holding.cpus
            for block in holding.memory:
                blocks[block.resource] = blocks.get(block.resource, 0) + block.size
        assert not held & own, "a CPU is held by two pods"
        held |= own
    if state.config.cpu_policy == "static":
        assert held & ~state.shared == held, "a CPU is shared and held"
        assert held | state.shared == state.topology.all_cpus, "a CPU is nowhere"
    for zone in state.memory.values():
        for amounts in zone.amounts.values():
            assert amounts.reserved + amounts.free == amounts.allocatable
    for resource, size in blocks.items():
        rows = (row.amounts[resource] for row in state.memory.values() if resource in row.amounts)
        assert sum(row.reserved for row in rows) == size


def without_ids(told: dict[str, Any], state: NodeState | None = None) -> dict[str, Any]:
    """Devices by their zones: a report tells of each device's zones, not of its id."""

    def zones(resource: str, device: str) -> object:
        if state is not None:
            pool = state.devices[resource]
            return pool.zones[pool.ids.index(device)]
        listed = DEVICES[resource][int(device.lstrip("aginplu"))]
        return None if listed is None else bits.of(listed)

    return told | {
        "devices": {
            uid: {
                name: sorted(
                    (resource, str([zones(resource, device) for device in devices]))
                    for resource, devices in held
                )
                for name, held in containers.items()
            }
            for uid, containers in told["devices"].items()
        }
    }


def kubelet_holds(node: Node, alive: Collection[str]) -> dict[str, Any]:
    """What the kubelet holds at its next admission, which a probe pod forces.

    The device manager then writes for no other pod than the probe; so its checkpoint is cut to
    the pods that are ``alive``, which is what it goes by in memory.
    """
    node.force_admission()
    cpu = statefiles.parse_cpu_state((node.root / "cpu_manager_state").read_bytes())
    memory = statefiles.parse_memory_state((node.root / "memory_manager_state").read_bytes())
    checkpoint = node.root / "device-plugins/kubelet_internal_checkpoint"
    devices = statefiles.parse_device_checkpoint(checkpoint.read_bytes())
    return {
        "shared": bits.format_list(cpu.default),
        "cpus": present(cpu.entries),
        "rows": dict(memory.zones),
        "blocks": {
            uid: {name: set(blocks) for name, blocks in containers.items()}
            for uid, containers in memory.entries.items()
        },
        "devices": present(
            {
                uid: {
                    name: {(held.resource, tuple(sorted(held.devices))) for held in holdings}
                    for name, holdings in containers.items()
                }
                for uid, containers in devices.entries.items()
                if uid in alive
            }
        ),
    }


def random_pod(rng: random.Random, node: Node, number: int) -> Object:
    """A pod of some kind; one that no node can hold among them."""
    name = f"{node.name}-p{number}"
    short = ["sleep", "0.1"]
    match 5 if number == 0 else rng.randrange(9):
        case 0 | 1:
            made = pod(container(rng.randint(1, 4), f"{rng.randint(1, 3)}Gi"), name=name)
        case 2:
            made = pod(container(2, "1Gi"), container(rng.randint(1, 3), "512Mi"), name=name)
        case 3:
            init = [container(rng.randint(1, 4), "2Gi", command=short)]
            made = pod(container(2, "1Gi"), init=init, name=name)
        case 4:
            made = pod(container(1, "1Gi"), init=[container(1, "1Gi", sidecar=True)], name=name)
        case 5:
            made = pod(container(200, "1Gi"), name=name)
        case 6:
            made = pod(container(1, "1Gi", limits={"memory": "2Gi"}), name=name)
        case 7:
            made = pod(container("300m", "1Gi"), name=name)
        case _:
            made = pod(container(1, "1Gi", **{GPU: 1}), name=name)
    made["spec"] |= {"nodeName": node.name, "tolerations": [{"operator": "Exists"}]}
    return made


#: How many pods come and go under each topology manager policy.
EVENTS = {"single-numa-node": 200, "restricted": 50, "best-effort": 50, "none": 50}


def test_what_is_published_is_what_the_kubelet_holds_at_its_next_admission(
    cluster: Cluster, fresh_nodes: Callable[[Sequence[dict[str, Any]]], list[Node]]
) -> None:
    nodes = fresh_nodes(
        [
            {
                "name": f"random-{policy}",
                "shape": "2x24,memory=32Gi",
                # The kubelet's own clean-up between admissions must not help.
                "kubelet": {"policy": policy, "reserved_cpus": "0,24", "reconcile": "1h"},
                "devices": DEVICES,
            }
            for policy in EVENTS
        ]
    )
    for node in nodes:
        agents.start(node)
    # A kubelet takes its time over each pod: the nodes do so side by side.
    with ThreadPoolExecutor(len(nodes)) as pool:
        runs = [
            pool.submit(come_and_go, cluster, node, policy, events)
            for node, (policy, events) in zip(nodes, EVENTS.items(), strict=True)
        ]
    for run in runs:
        run.result()


def come_and_go(cluster: Cluster, node: Node, policy: str, events: int) -> None:
    """Random pods on a node; after each batch its report is held against its kubelet."""
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    rng = random.Random(policy)
    alive: list[Object] = []
    outcomes: set[str] = set()
    done = 0
    while done < events:
        # All of a batch at once: the kubelet admits some while others end.
        begun: list[Object] = []
        ended: list[Object] = []
        for _ in range(rng.randint(1, 6)):
            if alive and (rng.random() < 0.45 or len(alive) + len(begun) > 12):
                gone = alive.pop(rng.randrange(len(alive)))
                cluster.api.delete(pods.path(gone), grace=rng.choice([0, None]))
                ended.append(gone)
            else:
                begun.append(cluster.create_pod(random_pod(rng, node, done)))
            done += 1
        for made in begun:
            final = cluster.wait_pod(
                made, lambda obj: obj and obj["status"].get("phase") in ("Running", "Failed")
            )
            outcomes.add(final["status"]["phase"])
            if final["status"]["phase"] == "Running":
                alive.append(made)
        for gone in ended:
            cluster.wait_pod(gone, lambda obj: obj is None)
        uids = {item["metadata"]["uid"] for item in alive}
        over = {item["metadata"]["uid"] for item in [*begun, *ended]} - uids

        def knows_of_all(state: NodeState, uids: set[str] = uids, over: set[str] = over) -> bool:
            return uids <= state.admitted and not over & state.holdings.keys()

        cluster.api.wait(
            agents.NRT, node.name, lambda obj: obj and knows_of_all(state_of(obj)),
            what=f"{node.name}: a report of all {done} pods",
        )  # fmt: skip
        time.sleep(0.2)  # what else a reaction may bring; nothing to be awaited tells
        ours = published(node)
        assert without_ids(plainly(ours), ours) == without_ids(kubelet_holds(node, uids)), policy
    assert outcomes == {"Running", "Failed"}, policy
    for seen in list(watcher.events):
        assert_consistent(state_of(seen.object))
    assert "rror" not in node.log("agent"), node.log("agent")


def test_an_idle_agent_writes_and_asks_nothing(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("idle", shape="2x8")
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    time.sleep(3)
    before, began = requests(cluster), len(watcher.events)
    time.sleep(25)
    assert len(watcher.events) == began
    assert requests(cluster) == before
    lease = cluster.api.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{agents.LEASE_NAMESPACE}/leases/{node.name}"
    )
    assert lease["spec"]["holderIdentity"]


def requests(cluster: Cluster) -> dict[str, float]:
    """Requests that the API server has answered about reports and kubelet configuration."""
    counts = {}
    for line in str(cluster.api.request("GET", "/metrics")).splitlines():
        match = re.match(r"apiserver_request_total\{(.*)\} (\S+)$", line)
        if match and (
            'resource="noderesourcetopologies"' in match[1] or 'subresource="proxy"' in match[1]
        ):
            counts[match[1]] = float(match[2])
    return counts


def test_a_kubelet_restart_in_mid_stream(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("restart", shape="2x8,memory=16Gi", devices=PLAIN)
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    kept = cluster.run_pod(pod(container(2, "1Gi"), node=node.name, name="kept"))["metadata"]["uid"]
    before = wait_state(watcher, lambda state: state.synced and kept in state.admitted)
    since = len(watcher.events)
    config = {**node.config, "topologyManagerPolicy": "restricted"}
    node.stop_kubelet()
    for name in ("cpu_manager_state", "memory_manager_state"):
        assert (node.root / name).exists()
    node.configure(config)
    node.start_kubelet()
    fresh = wait_state(watcher, lambda state: state.epoch != before.epoch, since)
    assert not fresh.synced
    # A last report of the old kubelet may have come after ``since``.
    after = wait_state(watcher, lambda state: state.synced and state.epoch != before.epoch, since)
    assert after.config.topology_policy == "restricted"
    assert after.holdings[kept] == before.holdings[kept]
    node.wait_ready(30)
    last = cluster.run_pod(pod(container(2, "1Gi"), node=node.name, name="later"))["metadata"][
        "uid"
    ]
    wait_state(watcher, lambda state: last in state.admitted, since)
    assert plainly(published(node)) == kubelet_holds(node, {kept, last})
    for seen in list(watcher.events):
        assert_consistent(state_of(seen.object))


#: Schedulers take an agent for dead so long after a renewal of its Lease was seen.
DEAD_S = 40


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda how: how.name)
def test_a_kubelet_that_has_ended_or_was_stopped_is_not_trusted_after_45_seconds(
    cluster: Cluster, fresh_node: FreshNode, how: signal.Signals
) -> None:
    node = fresh_node(f"trust-{how.name.lower()}", shape="2x8")
    command = agents.command(node)
    agents.start(node, argv=command)
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    processes.wait_until(lambda: not agents.ready(command), 60, "readiness")
    renewed = lease_of(node)["renewTime"]
    processes.wait_until(lambda: lease_of(node)["renewTime"] != renewed, 15, "a renewal")
    time.sleep(random.uniform(0, 10))
    since = len(watcher.events)
    (kubelet,) = [
        process
        for process in processes.find(cluster.dir, f"{node.name}/kubelet")
        if process.name() == "kubelet"
    ]
    kubelet.send_signal(how)
    began = time.monotonic()
    try:
        if how is signal.SIGKILL:  # its closed connection tells
            wait_state(watcher, lambda state: not state.synced, since, seconds=2)
        renewed, last = lease_of(node)["renewTime"], began
        while time.monotonic() < last + DEAD_S:
            time.sleep(0.2)
            if (now := lease_of(node)["renewTime"]) != renewed:
                renewed, last = now, time.monotonic()
        took = time.monotonic() - began
        processes.note(f"trust ended {took:.1f} s after {how.name}")
        assert took <= 45
        time.sleep(3)
        reasons = agents.ready(command)
        assert any(reason.startswith("lease: ") for reason in reasons)
        assert any(reason.startswith("source: ") for reason in reasons)
    finally:
        if how is signal.SIGSTOP:
            kubelet.send_signal(signal.SIGCONT)
        else:
            node.stop_kubelet()
            node.start_kubelet()
    processes.wait_until(lambda: not agents.ready(command), 60, "readiness")
    assert published(node).synced
    processes.wait_until(lambda: lease_of(node)["renewTime"] != renewed, 15, "a renewal")


def test_a_restart_of_ten_seconds_does_not_end_the_lease(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node("ten", shape="2x8", devices=PLAIN)
    command = agents.command(node)
    agents.start(node, argv=command)
    agents.wait_published(node)
    watcher = reports(node)
    before = wait_state(watcher, lambda state: state.synced)
    processes.wait_until(lambda: not agents.ready(command), 60, "readiness")
    since, renewed = len(watcher.events), lease_of(node)["renewTime"]
    last, gap = time.monotonic(), 0.0
    node.stop_kubelet()
    wait_state(watcher, lambda state: not state.synced, since, seconds=2)
    began, back = time.monotonic(), False
    while time.monotonic() < began + 30 or agents.ready(command):
        assert time.monotonic() < began + 90
        time.sleep(0.2)
        if not back and time.monotonic() > began + 10:
            node.start_kubelet()
            back = True
        if (now := lease_of(node)["renewTime"]) != renewed:
            gap = max(gap, time.monotonic() - last)
            renewed, last = now, time.monotonic()
    after = wait_state(watcher, lambda state: state.synced and state.epoch != before.epoch, since)
    # Whether more of them may be broken is known again when the plugin has told of all.
    assert all_known(after.devices) == all_known(before.devices)
    assert 0 < gap < DEAD_S


def all_known(devices: Mapping[str, DevicePool]) -> dict[str, DevicePool]:
    return {name: replace(pool, complete=True) for name, pool in devices.items()}


def lease_of(node: Node) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{agents.LEASE_NAMESPACE}/leases/{node.name}"
    return node.cluster.api.get(path)["spec"]


def test_an_agent_that_starts_before_its_kubelet(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("early", shape="2x8,memory=16Gi")
    held = cluster.run_pod(pod(container(2, "1Gi"), node=node.name))["metadata"]["uid"]
    command = agents.command(node)
    node.stop_kubelet()
    agents.start(node, argv=command)
    time.sleep(3)
    assert cluster.api.find(f"{agents.NRT}/{node.name}") is None
    watcher = reports(node)
    node.start_kubelet()
    state = wait_state(watcher, lambda state: state.synced)
    assert held in state.admitted
    assert state.holdings[held]["c0"].cpus.bit_count() == 2


def test_changes_while_the_api_server_is_away_end_in_one_write_of_the_last_state(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node("outage", shape="2x8,memory=16Gi", devices=PLAIN)
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    time.sleep(1)
    since = len(watcher.events)
    cluster.stop_apiserver()
    try:
        for number in range(3):
            item = pod(container(2, "1Gi"), name=f"static{number}")
            (node.dir / f"static/s{number}.json").write_text(json.dumps(item))
            processes.wait_until(
                lambda wanted=number + 1: (
                    len(node.state_file("cpu_manager_state").get("entries", {})) == wanted
                ),
                30, "a static pod",
            )  # fmt: skip
        time.sleep(1)
    finally:
        cluster.start_apiserver()
    state = wait_state(watcher, lambda state: len(state.holdings) == 3, since)
    assert_consistent(state)
    changed = {
        bits.format_list(state_of(seen.object).shared)
        for seen in watcher.events[since:]
        if seen.kind != "DELETED"
    }
    assert len(changed) <= 2  # the old state, as the new watch lists it, and the last
    assert plainly(published(node)) == kubelet_holds(node, state.holdings)


def test_a_deleted_object_comes_back_and_leftovers_of_an_earlier_life_go(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node("deleted", shape="2x8")
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    wait_state(watcher, lambda state: state.synced)
    since = len(watcher.events)
    cluster.api.delete(f"{agents.NRT}/{node.name}")
    wait_state(watcher, lambda state: state.synced, since + 1)
    annotations = cluster.api.get(f"{agents.NRT}/{node.name}")["metadata"]["annotations"]
    assert any("koordinator" in name for name in annotations)
    node.stop("agent")
    agents.start(node, "--koordinator-annotations=false")

    def is_clean(seen: Seen) -> bool:
        names = (seen.object["metadata"].get("annotations") or {}) if seen.kind != "DELETED" else {}
        return bool(names) and not any("koordinator" in name for name in names)

    assert watcher.wait(since, is_clean, 20)


def test_a_stopped_agent_gives_its_lease_back(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("stopped", shape="1x4")
    agents.start(node)
    agents.wait_published(node)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{agents.LEASE_NAMESPACE}/leases"
    held = cluster.api.wait(path, node.name, lambda lease: lease is not None)
    assert held is not None
    assert held["metadata"]["ownerReferences"][0]["kind"] == "Node"
    node.stop("agent")
    lease = cluster.api.get(f"{path}/{node.name}")
    assert not lease["spec"].get("holderIdentity")


def test_a_static_pod_and_its_mirror(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("static", shape="2x8,memory=16Gi", kubelet={"reconcile": "1h"})
    agents.start(node)
    agents.wait_published(node)
    watcher = reports(node)
    uid = add_static_pod(cluster, node)
    state = wait_state(watcher, lambda state: uid in state.admitted)
    assert state.holdings[uid]["c0"].cpus.bit_count() == 2
    since = len(watcher.events)
    cluster.api.delete(f"/api/v1/namespaces/default/pods/static-{node.name}", grace=0)
    time.sleep(4)
    assert all(uid in state_of(seen.object).holdings for seen in watcher.events[since:])
    (node.dir / "static/static.json").unlink()
    wait_state(watcher, lambda state: uid not in state.holdings, since, 60)


def test_the_printer_columns(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node("columns", shape="2x8")
    agents.start(node)
    agents.wait_published(node)
    header, row = cluster.kubectl("get", "noderesourcetopologies", node.name).splitlines()[:2]
    assert header.split()[:5] == ["NAME", "POLICY", "SCOPE", "FREE", "CPUS"]
    fields: list[Any] = row.split()
    assert fields[:5] == [node.name, "single-numa-node", "container", "node-0:7", "node-1:8"]
