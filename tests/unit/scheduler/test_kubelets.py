"""What the scheduler counts of kubelets: rules that are known, restarts that would do harm."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from rte import placement
from rte.cli.explain import restarts
from rte.model.node import DevicePool
from rte.scheduler.report import kubelets
from rte.scheduler.report.kubelets import KubeletWatch, restarted
from rte.scheduler.report.metrics import SchedulerMetrics
from tests.unit.scheduler.build import World, state

STRICT = {"cpu_options": {"strict-cpu-reservation": "true"}}
WHOLE_CORES = {"cpu_options": {"full-pcpus-only": "true"}}


class Watched(World):
    """A world whose kubelets are looked at; the clock stands still unless it is set going."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = SchedulerMetrics()
        self.now = 0.0
        self.watch = KubeletWatch(self.metrics, lambda: self.now)

    def look(self) -> None:
        self.watch.look(self.cluster.nodes.values())

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"rte_scheduler_{name}", labels)

    def broken(self, effect: str) -> float | None:
        return self.value("nodes_broken_by_restart", effect=effect)

    def run(self, name: str, node: str, *cpus: str) -> None:
        pod = self.pod(name=name, cpu=cpus, node_name=node)
        assert self.admit(pod, node).admitted
        self.report(node)


def test_a_kubelet_without_a_shared_cpu_would_not_start_again():
    world = Watched()
    world.node("a", state(policy="none", **STRICT))
    world.run("all", "a", "15")
    world.look()
    assert world.broken("start_error") == 1
    assert world.broken("refusals") == 0


def test_pods_that_would_be_refused_count_once_a_node():
    world = Watched()
    world.node("a", state(policy="none", **WHOLE_CORES))
    world.node("b")
    world.run("half", "a", "8")
    world.run("other", "b", "2")
    world.look()
    assert world.broken("refusals") == 1

    world.end(world.cluster.pods["uid-half"], "a")
    world.report("a")
    world.look()
    assert world.broken("refusals") == 0


def test_nodes_without_a_report_of_ours_are_not_counted():
    world = Watched()
    world.node("bare", bare=True)
    world.look()
    assert world.value("kubelets", rules="exact") == 0
    assert restarted(world.cluster.nodes["bare"]) is None


def test_a_node_that_has_not_changed_is_not_looked_at_again(monkeypatch):
    world = Watched()
    world.node("a")
    asked = []
    monkeypatch.setattr(kubelets, "restarted", lambda entry: asked.append(entry.name))
    world.look()
    world.look()
    assert asked == ["a"]
    world.report("a", epoch="2")
    world.look()
    assert asked == ["a", "a"]


def test_every_node_has_its_turn_when_time_is_short(monkeypatch):
    world = Watched()
    ticks = count()
    world.watch = KubeletWatch(world.metrics, lambda: next(ticks) * kubelets.LOOK_S * 0.6)
    asked = []
    monkeypatch.setattr(kubelets, "restarted", lambda entry: asked.append(entry.name))
    for name in "abc":
        world.node(name)
    for _ in range(3):
        world.look()
        world.report("a", epoch=str(len(asked)))
    assert set(asked) == {"a", "b", "c"}


def test_how_well_rules_are_known_is_counted_and_an_unknown_release_is_logged_once(caplog):
    world = Watched()
    for name, version in (("a", "v1.35.4"), ("b", "v1.36.99"), ("c", "v1.39.0"), ("d", "v1.39.0")):
        world.node(name, replace(state(), kubelet_version=version))
    world.look()
    world.look()
    counted = [world.value("kubelets", rules=rules) for rules in ("exact", "assumed", "unknown")]
    assert counted == [1, 1, 2]
    (line,) = caplog.messages
    assert line.startswith("no rules for kubelet v1.39.0: 1.34 to 1.38 are known; wait for")
    assert line.endswith("that lists 1.39; its nodes are a last resort")


# rte explain --restart


def broken_world():
    world = Watched()
    world.node("dark", bare=True)
    world.node("fine")
    world.node("loses", state(policy="none", **WHOLE_CORES))
    world.node("stuck", state(policy="none", **STRICT))
    world.run("p-fine", "fine", "2")
    world.run("p-half", "loses", "8")
    world.run("p-all", "stuck", "15")
    return world


@pytest.mark.parametrize(
    ("node", "code", "words"),
    [
        (
            "fine",
            0,
            ["+ fine: a restart does no harm (1 pod with exclusive CPUs, memory or devices)"],
        ),
        (
            "loses",
            1,
            ["- loses: a restart would refuse 1 pod with ", "default/p-half: refused, SMT"],
        ),
        ("stuck", 1, ["its kubelet would not start: cpumanager: default cpuset cannot be empty"]),
        ("dark", 1, ["? dark: no agent of ours publishes"]),
        ("", 1, ["? dark", "- loses", "- stuck"]),
    ],
)
def test_explain_tells_what_a_restart_would_do(node, code, words, capsys):
    assert restarts.show(broken_world().cluster, node, "text") == code
    out = capsys.readouterr().out
    assert all(word in out for word in words)
    assert ("fine" in out) is (node == "fine")


def test_explain_speaks_json(capsys):
    restarts.show(broken_world().cluster, "loses", "json")
    assert '"reason": "SMTAlignmentError"' in capsys.readouterr().out


def test_a_container_that_may_be_taken_for_dead_is_told(capsys):
    world = Watched()
    gpus = {"example.com/gpu": DevicePool(ids=("g0",), zones=(1,), healthy=1)}
    world.node("old", replace(state(devices=gpus), kubelet_version="v1.34.2"))
    pod = world.pod(name="gpu", cpu=("2",), node_name="old", extra={"example.com/gpu": "1"})
    assert world.admit(pod, "old").admitted
    world.report("old")
    assert restarts.show(world.cluster, "old", "text") == 1
    assert "default/gpu: uncertain, DevicePluginsNotBack" in capsys.readouterr().out


def test_only_pods_that_hold_something_are_asked_about():
    world = Watched()
    world.node("a")
    world.run("own", "a", "2")
    loose = world.pod(name="loose", cpu=("1",), node_name="a", guaranteed=False)
    assert world.admit(loose, "a").admitted
    world.report("a")
    answer, pods = restarted(world.cluster.nodes["a"])
    assert list(answer.admissions) == list(pods) == ["uid-own"]
    assert isinstance(answer, placement.PredictedRestart)
