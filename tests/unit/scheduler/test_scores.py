"""What a profile prefers: strategies and weights as users of kube-scheduler know them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.cli import main
from rte.scheduler.framework import node, objects
from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.framework.profile import Scoring
from rte.scheduler.front.answers import explain_pod
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.plugins.registry import WEIGHED, RuleOptions
from rte.scheduler.plugins.scoring_strategy import STRATEGIES
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.policies import load_scoring, read_scoring
from tests.unit.scheduler.build import World, node_object, pod_object, state

if TYPE_CHECKING:
    from rte.placement.foreign.zones import ZoneTable
    from rte.scheduler.framework.objects import PodView

MIB = 1 << 20


def world_of(**profile: Any) -> World:
    """Pods of rte-scheduler are served by that profile."""
    return World(scoring=read_scoring({"profiles": {"rte-scheduler": profile}}))


def scores(world: World, pod: PodView, rule: str) -> dict[str, float]:
    """What the rule gives to each node that takes the pod."""
    found = [
        Candidate(entry, status)
        for entry in world.cluster.nodes.values()
        if not (status := world.cycle.check(entry, pod)).reason
    ]
    given = world.cycle.scores(pod, found).get(rule, [])
    return {each.node.name: score for each, score in zip(found, given, strict=bool(given))}


# Zones of 7 and 8 free CPUs, 15 and 16 GiB; the pod takes 2 CPUs and 8 GiB. Of the zones the one
# with the lower score counts: the kubelet chooses, not the scheduler.
@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ("LeastAllocated", 58),  # (71 + 46) / 2, not (75 + 50) / 2
        ("MostAllocated", 37),  # (25 + 50) / 2, not (28 + 53) / 2
        ("BalancedAllocation", 96),  # 100 (1 - (1/2 - 1/4)^2 / 2)
        ("LeastNUMANodes", 94),  # one zone: 100 - 12, and 6 for it is the closest
    ],
)
def test_zones_are_scored_as_by_noderesourcetopologymatch(strategy: str, score: float) -> None:
    world = world_of(scoringStrategy=strategy)
    world.node("n")
    pod = world.pod(cpu="2", mem="8Gi")
    assert scores(world, pod, "ScoringStrategy") == {"n": score}
    assert scores(world, pod, "ZoneRoom") == {}


def table() -> ZoneTable:
    """Of another exporter: one zone of 8 CPUs and 16 GiB."""
    amounts = {"cpu": "8", "memory": "16Gi"}
    zone = {
        "name": "node-0",
        "type": "Node",
        "resources": [
            {"name": name, "capacity": has, "allocatable": has, "available": has}
            for name, has in amounts.items()
        ],
    }
    policy = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "container"},
    ]
    report = node.read_report({"metadata": {"name": "f"}, "zones": [zone], "attributes": policy})
    assert report.table is not None
    return report.table


def test_pods_that_another_exporters_report_may_not_count_are_taken_off_its_zones() -> None:
    world = world_of(scoringStrategy="MostAllocated")
    world.node("f", bare=True)
    world.cluster.set_report("f", node.Report(table=table()), 0.0)
    pod = world.pod(cpu="2", mem="8Gi")
    assert scores(world, pod, "ScoringStrategy") == {"f": 37}  # (25 + 50) / 2
    assert world.place(world.pod(cpu="4", mem="4Gi")) == "f"
    assert scores(world, pod, "ScoringStrategy") == {"f": 58}  # (50 + 66) / 2


def test_a_guaranteed_pod_is_worth_nothing_where_no_zones_are_known() -> None:
    world = world_of(scoringStrategy="LeastAllocated")
    world.node("bare", bare=True)
    world.node("full")
    world.place(world.pod(cpu="7", mem="14Gi"))
    pod = world.pod()
    found = scores(world, pod, "ScoringStrategy")
    assert found["bare"] == 0 < found["full"]
    assert world.place(pod) == "full"


# 10 CPUs and 10 GiB; the pod asks for 2 CPUs and 5 GiB.
@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ("LeastAllocated", 65),  # (80 + 50) / 2
        ("MostAllocated", 35),  # (20 + 50) / 2
        ("BalancedAllocation", 67),  # 50 + (50 + 85 - 100) / 2
    ],
)
def test_ordinary_pods_are_scored_by_node_totals_as_by_kube_scheduler(
    strategy: str, score: float
) -> None:
    world = world_of(scoringStrategy=strategy)
    world.node("n", bare=True, allocatable={"cpu": "10", "memory": "10Gi"})
    pod = world.pod(guaranteed=False, cpu="2", mem="5Gi")
    assert scores(world, pod, "ScoringStrategy") == {"n": score}


def test_so_are_guaranteed_ones_where_no_pod_is_bound_to_one_zone() -> None:
    world = world_of(scoringStrategy="MostAllocated")
    world.node("n", state(policy="best-effort"), allocatable={"cpu": "10", "memory": "10Gi"})
    assert scores(world, world.pod(cpu="2", mem="5Gi"), "ScoringStrategy") == {"n": 35}


def test_pods_without_requests_count_for_something_but_are_not_balanced() -> None:
    """kube-scheduler counts 100m and 200Mi for it, and leaves it out of the balance."""
    for strategy, score in (("LeastAllocated", 90), ("BalancedAllocation", 0)):
        world = world_of(scoringStrategy=strategy)
        world.node("n", bare=True, allocatable={"cpu": "1", "memory": "2000Mi"})
        obj = pod_object()
        obj["spec"]["containers"][0]["resources"] = {}
        assert scores(world, world.pod(obj), "ScoringStrategy") == {"n": score}


def test_least_numa_nodes_leaves_pods_without_exclusive_cpus_where_they_go_by_default() -> None:
    chosen, usual = world_of(scoringStrategy="LeastNUMANodes"), World()
    for world in (chosen, usual):
        world.node("n")
    asked = (world.pod(guaranteed=False, cpu="1") for world in (chosen, usual))
    here, there = map(partial(scores, rule="ZoneRoom"), (chosen, usual), asked)
    assert here == there != {}


@pytest.mark.parametrize("guaranteed", [True, False])
@pytest.mark.parametrize(("strategy", "best"), [("MostAllocated", "n7"), ("LeastAllocated", "n8")])
def test_the_best_of_all_nodes_is_found_not_of_the_first_ones(
    strategy: str, best: str, *, guaranteed: bool
) -> None:
    world = world_of(scoringStrategy=strategy)
    for index in range(20):
        world.node(f"n{index}")
        load = {"n7": ("6", "6"), "n8": ()}.get(f"n{index}", ("3", "3"))
        for amount in load:
            pod = world.pod(cpu=amount, mem=f"{amount}Gi", node_name=f"n{index}")
            assert world.admit(pod, f"n{index}").verdict == "admitted"
        world.report(f"n{index}")
    assert world.place(world.pod(cpu="1", guaranteed=guaranteed)) == best


def test_other_profiles_are_served_as_ever() -> None:
    world = world_of(scoringStrategy="MostAllocated", weights={"NodeAffinity": 0})
    world.node("n")
    assert scores(world, world.pod(schedulerName="other"), "ZoneRoom").keys() == {"n"}


def preferring(label: str) -> dict[str, Any]:
    """Affinity to nodes with that label."""
    term = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    wish = [{"weight": 1, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def test_weights_decide_between_preferences() -> None:
    for weights, best in (({}, "wanted"), ({"NodeAffinity": 0, "TaintToleration": 0}, "empty")):
        world = world_of(scoringStrategy="LeastAllocated", weights=weights)
        world.node("wanted", bare=True, labels={"mine": ""})
        world.node("empty", bare=True)
        world.pod(guaranteed=False, cpu="8", mem="1Gi", node_name="wanted")
        pod = world.pod(guaranteed=False, affinity=preferring("mine"))
        assert world.place(pod) == best
    world = world_of(weights={"NodeAffinity": 50})
    world.node("wanted", labels={"mine": ""})
    world.node("empty")
    found = scores(world, world.pod(affinity=preferring("mine")), "NodeAffinity")
    assert found == {"wanted": 5000, "empty": 0}


# --- images --------------------------------------------------------------------------------------


def images(world: World, name: str, **sizes: int) -> None:
    """A node that has these images, by MiB: ``a300`` is ``gcr.io/a300:latest``."""
    obj = node_object(name, {"cpu": "8", "memory": "8Gi"})
    obj["status"]["images"] = [
        {"names": [f"gcr.io/{image}:latest", f"gcr.io/{image}@sha256:1"], "sizeBytes": size * MIB}
        for image, size in sizes.items()
    ]
    kept = objects.read_node(obj, images=world.cluster.shapes.images)
    world.cluster.set_node(kept)


def running(*names: str, **spec: Any) -> dict[str, Any]:
    obj = pod_object(cpu=["1"] * len(names), guaranteed=False, **spec)
    for box, name in zip(obj["spec"]["containers"], names, strict=True):
        box["image"] = f"gcr.io/{name}"
    return obj


def test_image_locality_is_kube_schedulers() -> None:
    world = world_of(weights={"ImageLocality": 1})
    images(world, "one", a40=40, a140=140, a2000=2000)
    images(world, "two", a250=250, a10=10)

    def found(*names: str, **spec: Any) -> dict[str, float]:
        return scores(world, world.pod(running(*names, **spec)), "ImageLocality")

    # Half of the nodes have each image, so it counts for half of its size.
    assert found("a40", "a250") == {"one": 0, "two": 5}  # 100 (125 - 23) / (2 x 1000 - 23)
    assert found("a40", "a140") == {"one": 3, "two": 0}  # 100 (20 + 70 - 23) / (2000 - 23)
    assert found("a2000") == {"one": 100, "two": 0}
    assert found("a2000@sha256:1", "a10") == {"one": 49, "two": 0}  # 100 (1000 - 23) / (2000 - 23)
    assert found("a2000:v2") == {}
    # Images of init containers and of volumes as well.
    volume = {"name": "v", "image": {"reference": "gcr.io/a250"}}
    init = {"name": "i", "image": "gcr.io/a140"}
    assert found("a40", volumes=[volume], initContainers=[init]) == {"one": 2, "two": 3}
    # Where all nodes have it its size counts whole.
    images(world, "two", a2000=2000)
    assert found("a2000") == {"one": 100, "two": 100}
    images(world, "one")
    images(world, "two")
    assert world.cluster.columns.images == {}


def test_a_pod_goes_where_its_image_is() -> None:
    world = world_of(weights={"ImageLocality": 100})
    for index in range(12):
        images(world, f"n{index}", **({"large": 9000} if index == 9 else {}))
    assert world.place(world.pod(running("large"))) == "n9"
    assert world.place(world.pod(running("large"))) == "n9"


def test_images_are_not_kept_unless_a_profile_weighs_them() -> None:
    world = world_of(scoringStrategy="MostAllocated", weights={"ImageLocality": 0})
    images(world, "n", large=9000)
    info = world.cluster.nodes["n"].info
    assert info is not None
    assert not info.images
    assert world.cluster.columns.images == {}
    shapes = [world.pod(running(image)).shape for image in ("large", "other")]
    assert shapes[0] is shapes[1]
    assert shapes[0].images == ()


def test_the_scheduler_reads_images_where_a_profile_weighs_them() -> None:
    for scoring, kept in (({"gold": Scoring(weights={"ImageLocality": 1.0})}, True), ({}, False)):
        machine = SchedulerMachine("rte-scheduler", RuleOptions(scoring=scoring))
        obj = node_object("n", {"cpu": "8"})
        obj["status"]["images"] = [{"names": ["gcr.io/large:latest"], "sizeBytes": MIB}]
        machine.intake.seen("nodes", obj, 0.0)
        assert ("gcr.io/large:latest" in machine.cluster.columns.images) is kept


def test_a_new_image_wakes_nobody() -> None:
    world = world_of(weights={"ImageLocality": 1})
    images(world, "n")
    world.cluster.drain()
    before = world.cluster.sequence
    images(world, "n", large=9000)
    assert "gcr.io/large:latest" in world.cluster.columns.images
    assert (world.cluster.drain(), world.cluster.sequence) == ([], before)


def test_a_list_of_images_without_end_is_cut() -> None:
    obj = node_object("n", {})
    obj["status"]["images"] = [{"names": [f"i{n}"], "sizeBytes": 1 << 70} for n in range(5000)]
    obj["status"]["images"][0]["names"].append("x" * 5000)
    kept = objects.read_node(obj, images=True).images
    assert len(kept) == 1000
    assert max(map(len, kept)) < 10
    assert max(kept.values()) < 1 << 60


# --- explain, and the file -----------------------------------------------------------------------


def test_explain_tells_every_score_of_the_profile() -> None:
    world = world_of(scoringStrategy="LeastAllocated", weights={"ImageLocality": 2})
    for name in ("a", "b"):
        images(world, name, large=9000)
    pod = world.pod(running("large"))
    told = explain_pod(world.cluster, world.cycle, pod).nodes[0].scores
    # Of 8 CPUs and 8 GiB one each is asked for: 87 % stay free.
    assert told["ScoringStrategy"] == 87
    assert told["ImageLocality"] == 200
    assert "ZoneRoom" not in told


def test_rte_explain_tries_a_file_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    obj = node_object("n", {"cpu": "8", "memory": "8Gi"})
    obj["status"]["images"] = [{"names": ["gcr.io/large:latest"], "sizeBytes": 9000 * MIB}]
    files = {
        "nodes": {"apiVersion": "v1", "kind": "Node", **obj},
        "pod": {"apiVersion": "v1", "kind": "Pod", **running("large")},
        "scores": {"profiles": {"rte-scheduler": {"weights": {"ImageLocality": 3}}}},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    flags = ["--from", str(tmp_path / "nodes"), "-f", str(tmp_path / "pod"), "-o", "json"]
    for scores, given in (([], None), (["--scores", str(tmp_path / "scores")], 300)):
        assert main(["explain", *flags, *scores]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["nodes"][0]["scores"].get("ImageLocality") == given


def test_profiles_are_the_names_that_the_scheduler_is_asked_about() -> None:
    settings = SchedulerSettings(also_for=("gold",))
    assert settings.profiles == ("rte-scheduler", "gold")
    behind = replace(settings, extender_listen=":1")
    assert behind.profiles == ("rte-scheduler", "gold", "default-scheduler")


def test_the_names_that_can_be_weighed_are_those_of_the_preferences() -> None:
    scores = World().cycle.profile.scores
    assert {each.name for each in scores if not each.decides} == set(WEIGHED)


def test_the_file_names_profiles_strategies_and_weights(tmp_path: Path) -> None:
    path = tmp_path / "scores.yaml"
    path.write_text(
        "profiles:\n"
        "  gold: {scoringStrategy: LeastAllocated, weights: {ImageLocality: 1}}\n"
        "  plain: {}"
    )
    found = load_scoring(path, ("gold", "plain", "more"))
    gold = Scoring(strategy="LeastAllocated", weights={"ImageLocality": 1})
    assert found == {"gold": gold, "plain": Scoring()}
    path.write_text("")
    assert load_scoring(path) == load_scoring(None) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("profile: {}", "profile: is not known; known are profiles"),
        ("profiles: []", "profiles: must be an object"),
        ("profiles: {gould: {}}", "profiles.gould: is not known; known are gold, plain"),
        (
            "profiles: {gold: {strategy: MostAllocated}}",
            "profiles.gold.strategy: is not known; known are scoringStrategy, weights",
        ),
        (
            "profiles: {gold: {scoringStrategy: Most}}",
            f"profiles.gold.scoringStrategy: must be one of {', '.join(STRATEGIES)}",
        ),
        (
            "profiles: {gold: {weights: {ImageLocalty: 1}}}",
            "profiles.gold.weights.ImageLocalty: is not known; known are " + ", ".join(WEIGHED),
        ),
        (
            "profiles: {gold: {weights: {ImageLocality: 101}}}",
            "profiles.gold.weights.ImageLocality: must be 0 to 100",
        ),
        (
            "profiles: {gold: {weights: {ZoneRoom: 0.5}}}",
            "profiles.gold.weights.ZoneRoom: must be a whole number",
        ),
        (
            "profiles: {gold: {weights: {ScoringStrategy: 2}}}",
            "profiles.gold.weights.ScoringStrategy: needs a scoringStrategy",
        ),
        ("profiles: {1: {}}", "profiles.1: is not known; known are gold, plain"),
    ],
)
def test_a_fault_of_the_file_is_told_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "scores.yaml"
    path.write_text(text)
    with pytest.raises(errors.UsageError) as caught:
        load_scoring(path, ("gold", "plain"))
    assert str(caught.value) == f"--scores {path}: {why}"


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(errors.UsageError, match="--scores /nowhere: "):
        load_scoring(Path("/nowhere"))
