"""An agent's rights: its own node's objects, and nothing of any other node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from tests.cluster import agents, processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.api import Api, Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{agents.LEASE_NAMESPACE}/leases"


def _nrt(name: str) -> Object:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": ["None"],
        "zones": [],
    }


def _lease(name: str) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


def _update(client: Api, path: str, obj: Object) -> None:
    changed = {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}}
    client.replace(f"{path}/{obj['metadata']['name']}", changed)


def _patch(client: Api, path: str, obj: Object) -> None:
    client.patch(f"{path}/{obj['metadata']['name']}", {"metadata": {"labels": {"a": "b"}}})


@pytest.fixture
def pair(
    cluster: Cluster, fresh_nodes: Callable[[list[dict[str, Any]]], list[Node]]
) -> tuple[Node, Node, Api]:
    """Two nodes and a client with the identity of the first one's agent."""
    mine, other = fresh_nodes([{"name": "mine", "shape": "1x4"}, {"name": "other", "shape": "1x4"}])
    token = cluster.token(agents.ACCOUNT, agents.NAMESPACE, pod=agents.identity(mine))
    return mine, other, cluster.client(token)


def _wait_for_policy(client: Api, path: str, body: Object) -> errors.KubeError:
    """The refusal of a write; a policy takes a moment from its creation to be in force."""
    deadline = time.monotonic() + 20
    while True:
        try:
            client.create(path, {**body, "metadata": {"name": "nobody"}})
        except errors.KubeError as refusal:
            if refusal.status != 409:  # it is there, from a moment ago
                return refusal
        client_path = f"{path}/nobody"
        assert time.monotonic() < deadline, f"{client_path}: never refused"
        time.sleep(0.1)


def test_an_agent_writes_its_own_objects_and_is_refused_any_other(
    cluster: Cluster, pair: tuple[Node, Node, Api]
) -> None:
    mine, other, client = pair
    for path, build, change in ((agents.NRT, _nrt, _update), (LEASES, _lease, _patch)):
        refusal = _wait_for_policy(client, path, build(other.name))
        assert refusal.status == 403
        change(client, path, client.create(path, build(mine.name)))
        theirs = cluster.api.create(path, build(other.name))
        with pytest.raises(errors.KubeError, match="may write only the objects of its own node"):
            change(client, path, theirs)
        with pytest.raises(errors.KubeError) as not_allowed:
            client.delete(f"{path}/{other.name}")
        assert not_allowed.value.status == 403
        cluster.api.delete(f"{path}/{mine.name}")
        cluster.api.delete(f"{path}/{other.name}")
        cluster.api.delete(f"{path}/nobody")
    client.close()


def test_an_agent_cannot_touch_the_schedulers_lease(
    cluster: Cluster, pair: tuple[Node, Node, Api]
) -> None:
    """Nor create any Lease beside it: the namespace of the agents' Leases is theirs alone."""
    _, _, client = pair
    beside = f"/apis/coordination.k8s.io/v1/namespaces/{agents.NAMESPACE}/leases"
    try:
        cluster.api.create(beside, _lease("rte-scheduler"))
    except errors.KubeError as failure:
        # A scheduler that was killed earlier on this control plane has left its own.
        assert failure.status == 409
    for attempt in (
        lambda: _patch(client, beside, _lease("rte-scheduler")),
        lambda: client.create(beside, _lease("another")),
        lambda: client.delete(f"{beside}/rte-scheduler"),
    ):
        with pytest.raises(errors.KubeError) as not_allowed:
            attempt()
        assert not_allowed.value.status == 403
    cluster.api.delete(f"{beside}/rte-scheduler")
    client.close()


def test_a_stolen_token_opens_no_other_door(cluster: Cluster, pair: tuple[Node, Node, Api]) -> None:
    mine, other, client = pair
    _wait_for_policy(client, agents.NRT, _nrt(other.name))
    kubelets = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    nodes, pods = "/api/v1/nodes", f"/api/v1/namespaces/{agents.NAMESPACE}/pods"
    agent = f"{agents.ACCOUNT}-{other.name}"
    generated = {**_nrt(""), "metadata": {"generateName": other.name}}
    for attempt in (
        lambda: client.create(agents.NRT, generated),
        lambda: client.delete(agents.NRT),
        lambda: client.delete(f"{agents.NRT}/{other.name}"),
        lambda: client.patch(
            f"{agents.NRT}/{other.name}", _nrt(other.name), "apply", fieldManager="rte-agent"
        ),
        lambda: client.create(LEASES, {**_lease(""), "metadata": {"generateName": other.name}}),
        lambda: client.delete(LEASES),
        lambda: _patch(client, kubelets, _lease(other.name)),  # the Node would go on being Ready
        lambda: _patch(client, kubelets, _lease(mine.name)),
        lambda: _patch(client, nodes, {"metadata": {"name": mine.name}}),
        lambda: client.patch(f"{nodes}/{mine.name}/status", {"status": {"capacity": {}}}),
        lambda: client.delete(f"{pods}/{agent}"),
        lambda: client.create(f"{pods}/{agent}/eviction", {}),
        lambda: client.create(f"{pods}/{agent}/binding", {}),
        lambda: client.get(f"/api/v1/namespaces/{agents.NAMESPACE}/secrets"),
        lambda: client.create(
            f"/api/v1/namespaces/{agents.NAMESPACE}/serviceaccounts/{agents.ACCOUNT}/token", {}
        ),
        lambda: client.get(f"{nodes}/{other.name}/proxy/pods"),
    ):
        with pytest.raises(errors.KubeError) as not_allowed:
            attempt()
        assert not_allowed.value.status == 403, not_allowed.value
    client.close()


def test_the_token_of_an_agent_that_is_gone_is_worth_nothing(
    cluster: Cluster, pair: tuple[Node, Node, Api]
) -> None:
    mine, _, client = pair
    client.get(f"/api/v1/nodes/{mine.name}")
    cluster.delete_pod(agents.identity(mine))

    def is_refused() -> bool:
        try:
            client.get(f"/api/v1/nodes/{mine.name}")
        except errors.KubeError as refusal:
            return refusal.status == 401
        return False

    # The API server remembers for ten seconds whom it has let in.
    processes.wait_until(is_refused, 40, "the token to end", every=0.5)
    client.close()


def test_a_token_without_a_node_may_write_nothing(
    cluster: Cluster, pair: tuple[Node, Node, Api]
) -> None:
    mine, _, bound = pair
    _wait_for_policy(bound, agents.NRT, _nrt("nobody"))
    loose = cluster.client(cluster.token(agents.ACCOUNT, agents.NAMESPACE))
    with pytest.raises(errors.KubeError, match="not bound to a node"):
        loose.create(agents.NRT, _nrt(mine.name))
    for client in (loose, bound):
        client.close()


def test_an_agent_reads_its_kubelets_configuration_and_no_secret(
    cluster: Cluster, pair: tuple[Node, Node, Api]
) -> None:
    mine, _, client = pair
    kubelet = type(client)(
        f"https://127.0.0.1:{mine.port}", cluster.authority.certificate, client.token
    )
    answer = kubelet.get("/configz")
    assert answer["kubeletconfig"]["topologyManagerPolicy"] == "single-numa-node"
    for path in ("/pods", "/metrics", "/exec/default/a/b"):
        with pytest.raises(errors.KubeError):
            kubelet.get(path)
    with pytest.raises(errors.KubeError):
        client.get("/api/v1/secrets")
    kubelet.close()
    client.close()


def test_rte_run_publishes_from_inside_the_node(
    cluster: Cluster, fresh_node: Callable[..., Node]
) -> None:
    """Needs no flag for hardware or kubelet: the namespace shows it both."""
    node = fresh_node(shape="2x8")
    done = node.run(agents.command(node, "--oneshot"))
    assert done.returncode == 0, done.stderr
    zones = agents.wait_published(node)["zones"]
    capacity = [
        next(r["capacity"] for r in zone["resources"] if r["name"] == "cpu") for zone in zones
    ]
    assert capacity == ["8", "8"]
