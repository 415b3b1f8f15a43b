"""``rte balloon``: what makes an autoscaler see what it is blind to."""

from __future__ import annotations

import json

import pytest

from rte.cli import balloon, main
from tests.unit.cli.objects import node_objects, pod_yaml


def waiting(name, cpus, **spec):
    return {**pod_yaml(name, cpus, **spec), "status": {"phase": "Pending"}}


def asked(capsys, *words):
    """The exit code and the balloons."""
    code = main(["balloon", *words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)["items"]


@pytest.fixture
def crowded(write):
    """A node with 3 CPUs free in each zone: 6 by its totals; ``waits`` are pods that want room."""

    def crowded(*waits, name="cluster.yaml", labels=None):
        node, *rest = node_objects("full", (4, 5))
        node["metadata"]["labels"] = labels or {}
        return write(name, [node, *rest, *waits])

    return crowded


def test_a_pod_that_fits_totals_and_no_zone_gets_a_balloon(crowded, capsys):
    code, (pod,) = asked(capsys, "--from", crowded(waiting("large", 5)))
    assert code == 0
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "5000m", "memory": str(2**30)}
    # No limits: it holds no CPUs of its own.
    assert container["resources"]["limits"] == {}
    assert pod["metadata"]["annotations"] == {balloon.STANDS_FOR: "default/large"}
    assert pod["spec"]["priorityClassName"] == balloon.PRIORITY_CLASS


def test_a_balloon_goes_to_no_node_where_pods_are_but_those_of_daemonsets(crowded, capsys):
    _, (pod,) = asked(capsys, "--from", crowded(waiting("large", 5)))
    affinity = pod["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["namespaceSelector"] == {}
    (rule,) = term["labelSelector"]["matchExpressions"]
    assert rule == {"key": "pod-template-generation", "operator": "DoesNotExist"}


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        (3, "no pod waits for a zone"),
        (7, "node totals are short for default/new: autoscalers see that"),
    ],
)
def test_what_autoscalers_see_by_themselves_gets_none(crowded, capsys, cpus, words):
    file = crowded(waiting("new", cpus))
    assert main(["balloon", "--from", file]) == 0
    assert words in capsys.readouterr().out
    assert asked(capsys, "--from", file) == (0, [])


def test_no_machine_is_added_for_a_pod_that_none_would_take(write, capsys):
    """Zones have 7 and 8 CPUs to be had: nine are in none, and 15 in all."""
    file = write("empty.yaml", [*node_objects("empty"), waiting("huge", 9)])
    code, pods = asked(capsys, "--from", file)
    assert (code, pods) == (1, [])
    assert main(["balloon", "--from", file]) == 1
    assert "takes default/huge, not even an empty one" in capsys.readouterr().out


def test_pods_share_a_machine_as_long_as_its_zones_take_them(write, capsys):
    """Two nodes with 6 free CPUs each by their totals; of the pods of 4 a machine takes three."""
    nodes = [*node_objects("a", (4, 5)), *node_objects("b", (4, 5))]
    pods = [waiting(f"p{number}", 4) for number in range(2)]
    code, (pod,) = asked(capsys, "--from", write("cluster.yaml", [*nodes, *pods]))
    assert code == 0
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "8000m"
    assert pod["metadata"]["annotations"][balloon.STANDS_FOR] == "default/p0,default/p1"


def test_a_balloon_goes_to_machines_of_the_kind_and_pool_that_the_pods_want(crowded, capsys):
    pool = {"pool": "numa"}
    labels = {**pool, balloon.MACHINE_KIND: "metal"}
    toleration = {"key": "numa", "operator": "Exists"}
    large = waiting("large", 5, nodeSelector=pool, tolerations=[toleration])
    _, (pod,) = asked(capsys, "--from", crowded(large, labels=labels))
    assert pod["spec"]["nodeSelector"] == pool
    assert pod["spec"]["tolerations"] == [toleration]
    required = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (rule,) = term["matchExpressions"]
    assert rule == {"key": balloon.MACHINE_KIND, "operator": "In", "values": ["metal"]}


def test_nothing_is_applied_to_files(crowded):
    assert main(["balloon", "--from", crowded(), "--apply"]) == 2


class _Api:
    """What the command reads, and what it writes."""

    def __init__(self, items):
        self.items, self.created, self.deleted = items, [], []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def create(self, path, body):
        self.created.append((path, body["metadata"]["name"]))

    async def delete(self, path):
        self.deleted.append(path)


@pytest.fixture
def apply(monkeypatch):
    """Run with ``--apply`` on these objects; what was written."""

    def apply(*items):
        api = _Api(list(items))

        async def read_objects(client):
            return client.items

        monkeypatch.setattr(balloon.live, "connect", lambda _: api)
        monkeypatch.setattr(balloon.live, "read_objects", read_objects)
        assert main(["balloon", "--apply", "--kubeconfig", "/somewhere"]) == 0
        return api

    return apply


def test_a_balloon_is_made_once_and_goes_when_its_pods_wait_no_more(apply):
    large = {**waiting("large", 5)}
    large["metadata"] |= {"uid": "uid-large", "namespace": "default"}
    first = apply(*node_objects("full", (4, 5)), large)
    ((path, name),) = first.created
    assert path == "/api/v1/namespaces/rte-system/pods"

    there = pod_yaml(name, 1)
    there["metadata"] |= {
        "namespace": "rte-system",
        "labels": {balloon.LABEL: "true"},
        "annotations": {balloon.STANDS_FOR: "uid-large"},
    }
    # Another one has room beside it on the machine that is to come.
    other = waiting("other", 4)
    second = apply(*node_objects("full", (4, 5)), *node_objects("b", (4, 5)), large, other, there)
    assert (second.created, second.deleted) == ([], [])

    large["spec"]["nodeName"] = "full"
    third = apply(*node_objects("full", (4,)), large, there)
    assert third.created == []
    assert third.deleted == [f"/api/v1/namespaces/rte-system/pods/{name}"]
