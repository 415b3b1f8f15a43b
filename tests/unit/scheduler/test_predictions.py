"""What became of predictions: counted, told once, kept, and reproduced from what was kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import placement
from rte.cli import explain
from rte.nrt import case as cases
from rte.placement import drift
from rte.placement.drift import Result
from rte.scheduler.report.predictions import Predictions
from tests.conformance.__main__ import main as conformance
from tests.unit.placement.drift import wrong
from tests.unit.scheduler.build import World
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rte.scheduler.framework.objects import PodView


class Watched:
    """A world whose binds are predicted and judged."""

    def __init__(self) -> None:
        self.world = World()
        self.world.node("n")
        self.predictions = Predictions()
        self.entry = self.world.cluster.nodes["n"]

    def bind(self, **options: str) -> PodView:
        pod = self.world.pod(**options)
        check = self.world.cycle.profile.check(pod.shape, self.entry)
        assert not check.reason
        self.predictions.expect(self.entry, pod, check)
        self.world.cluster.assume(pod.uid, "n")
        return replace(pod, node="n")

    def report(self) -> list[Result]:
        self.world.report("n")
        return [judged.case.result for judged in self.predictions.reported(self.entry)]

    def shift(self, pod: PodView) -> None:
        """The kubelet gives the pod one CPU more than it should."""
        kubelet = self.world.kubelets["n"]
        name, held = next(iter(kubelet.holdings[pod.uid].items()))
        more = held.cpus | held.cpus << 1
        moved = {name: type(held)(cpus=more, memory=held.memory, devices=held.devices)}
        self.world.kubelets["n"] = replace(kubelet, holdings={**kubelet.holdings, pod.uid: moved})


def test_a_pod_that_gets_what_was_predicted_is_exact() -> None:
    watched = Watched()
    pod = watched.bind(cpu="3")
    assert watched.report() == []
    watched.world.admit(pod, "n")
    assert watched.report() == [Result.EXACT]
    assert watched.report() == []


def test_a_pod_that_holds_nothing_is_compared_too() -> None:
    watched = Watched()
    pod = watched.bind(cpu="1500m")
    watched.world.admit(pod, "n")
    assert watched.report() == [Result.EXACT]


def test_the_first_pod_that_gets_something_else_is_found() -> None:
    watched = Watched()
    pod = watched.bind(cpu="3")
    watched.world.admit(pod, "n")
    watched.shift(pod)
    assert watched.report() == [Result.OTHER_CPUS]


def test_two_in_flight_may_be_admitted_in_either_order() -> None:
    watched = Watched()
    first, second = watched.bind(cpu="2"), watched.bind(cpu="2")
    watched.world.admit(second, "n")
    watched.world.admit(first, "n")
    assert watched.report() == [Result.EXACT, Result.EXACT]


def test_a_report_between_two_admissions_tells_their_order() -> None:
    """What the first has got is known by then, so the second has to get the rest."""
    watched = Watched()
    first, second = watched.bind(cpu="2"), watched.bind(cpu="2")
    watched.world.admit(first, "n")
    assert watched.report() == [Result.EXACT]
    watched.world.admit(second, "n")
    watched.shift(second)
    assert watched.report() == [Result.OTHER_CPUS]


def test_an_ending_that_the_api_shows_late_was_reckoned_with() -> None:
    watched = Watched()
    held = watched.bind(cpu="5")
    watched.world.admit(held, "n")
    watched.report()
    pod = watched.bind(cpu="4")
    kubelet = watched.world.kubelets["n"]
    watched.world.kubelets["n"] = placement.remove(kubelet, held.uid)
    watched.world.admit(pod, "n")
    assert watched.report() == [Result.EXACT]


def test_a_deletion_that_the_kubelet_sees_between_two_pods_was_reckoned_with() -> None:
    """The first was bound before it, the second after it; a report comes before both."""
    watched = Watched()
    below, held = watched.bind(cpu="2"), watched.bind(cpu="2")
    watched.world.admit(below, "n")
    watched.world.admit(held, "n")
    watched.world.kubelets["n"] = placement.remove(watched.world.kubelets["n"], below.uid)
    watched.world.cluster.remove_pod(below.uid, 0.0)
    watched.report()
    first = watched.bind(cpu="4")
    watched.world.cluster.remove_pod(held.uid, 0.0)
    watched.predictions.ended(held)
    assert watched.report() == []
    second = watched.bind(cpu="2")
    watched.world.admit(first, "n")
    kubelet = watched.world.kubelets["n"]
    watched.world.kubelets["n"] = placement.remove(kubelet, held.uid)
    watched.world.admit(second, "n")
    assert watched.report() == [Result.EXACT, Result.EXACT]


def test_a_pod_that_came_and_went_makes_it_uncertain() -> None:
    watched = Watched()
    pod = watched.bind(cpu="2")
    brief = watched.bind(cpu="2")
    watched.world.admit(brief, "n")
    watched.world.admit(pod, "n")
    kubelet = watched.world.kubelets["n"]
    watched.world.kubelets["n"] = placement.remove(kubelet, brief.uid)
    watched.predictions.ended(brief)
    watched.world.cluster.remove_pod(brief.uid, 0.0)
    assert watched.report() == [Result.UNCERTAIN]


def test_a_refusal_is_judged_when_the_node_was_read_afresh() -> None:
    watched = Watched()
    pod = replace(watched.bind(cpu="3"), rejected=True, reason="TopologyAffinityError")
    assert watched.predictions.refused(pod)
    watched.predictions.ended(pod)
    watched.world.cluster.remove_pod(pod.uid, 0.0)
    assert watched.report() == []
    (judged,) = watched.predictions.judge_refusals(watched.entry)
    assert judged.case.result is Result.REFUSED
    assert watched.predictions.judge_refusals(watched.entry) == []
    assert not watched.predictions.refused(pod)


def test_a_refusal_by_another_than_the_managers_says_nothing() -> None:
    watched = Watched()
    pod = replace(watched.bind(cpu="3"), rejected=True, reason="OutOfpods")
    assert watched.predictions.refused(pod)
    assert watched.predictions.judge_refusals(watched.entry) == []


def test_a_bind_that_failed_is_forgotten() -> None:
    watched = Watched()
    pod = watched.bind(cpu="3")
    watched.predictions.forget("n", pod.kubelet_uid)
    watched.world.admit(pod, "n")
    assert watched.report() == []


def test_a_wrong_rule_is_found_with_the_first_pod_and_its_case_reproduces_it(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched()
    after = watched.world.kubelets["n"]
    wrong.plant(monkeypatch)
    pod = watched.bind(cpu="3")
    right = wrong.right(after, pod.shape.as_pod(pod.uid))
    watched.world.kubelets["n"] = right.state
    watched.world.report("n")
    (judged,) = watched.predictions.reported(watched.entry)
    assert judged.case.result is Result.OTHER_CPUS
    file = cases.CaseFile(case=judged.case, node="n", recorded="now", rte="1")
    path = tmp_path / f"{file.id}.json"
    path.write_text(cases.encode(file))

    def explained() -> tuple[int, str]:
        parser = __import__("argparse").ArgumentParser()
        explain.configure(parser)
        code = explain.run(parser.parse_args(["--case", str(path)]))
        return code, capsys.readouterr().out

    code, text = explained()
    assert code == 1
    assert "reproduced: by the rules of this rte the kubelet could not do that" in text
    assert conformance(["rte_case", str(path)]) == 1
    monkeypatch.undo()
    code, text = explained()
    assert code == 0
    assert "not reproduced: this rte predicts what the kubelet did" in text
    assert conformance(["rte_case", str(path)]) == 0
    assert drift.is_explained(cases.decode(path.read_text()).case)


async def test_the_alarm_counts_tells_once_and_keeps_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Town(tmp_path) as town:
        await town.node("a", "2x8")
        async with town.scheduler(case_dir=tmp_path / "cases") as scheduler:

            def count(result: str) -> float:
                labels = {"result": result, "kubelet": town.kubelets["a"].version}
                name = "rte_scheduler_predictions_total"
                return scheduler.metrics.registry.get_sample_value(name, labels) or 0.0

            town.pod("right", "2")
            await until(lambda: count("exact") == 1)
            wrong.plant(monkeypatch)
            for number in range(2):
                town.pod(f"p{number}", "2")
                await until(lambda number=number: town.phase(f"p{number}") == "Running")
            await until(lambda: sum(map(count, ("other_cpus", "other_zone", "refused"))) == 2)
            (path,) = (tmp_path / "cases").iterdir()
            assert json.loads(path.read_text())["pod"]["name"] == "p0"
            lines = [r.message for r in caplog.records if "did not do as predicted" in r.message]
            assert len(lines) == 1
            assert f"rte explain --case {path}" in lines[0]
            await until(
                lambda: [
                    e
                    for e in town.api.list("events.events.k8s.io").items
                    if e["reason"] == "UnpredictedAdmission"
                ]
            )
