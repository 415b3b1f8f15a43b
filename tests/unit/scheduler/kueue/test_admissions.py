"""A Workload may start when its pods fit into zones now; what was promised to one is kept."""

from __future__ import annotations

from typing import Any

import pytest

from rte.scheduler.kueue import machine as machines
from rte.scheduler.kueue.messages import CHECKS, FLAVORS, WORKLOADS, Judge
from rte.scheduler.loop.messages import Bound, Leading, Outcome
from tests.unit.scheduler import gpus
from tests.unit.scheduler.build import state
from tests.unit.scheduler.kueue.quota import CHECK, Quota, pod_set

# A node has zones of 7 and 8 free CPUs: three pods of 4 fit.


def quota(nodes: int = 1, **options: float) -> Quota:
    made = Quota(**options)
    for number in range(nodes):
        made.desk.node(f"n{number}")
    made.check()
    return made


def test_the_check_becomes_active_under_our_controller_name_only() -> None:
    made = quota()
    made.check("foreign", controller="kueue.x-k8s.io/multikueue")
    assert made.checks[CHECK]["status"]["conditions"][0]["status"] == "True"
    assert "status" not in made.checks["foreign"]


def test_a_check_that_could_not_be_written_is_written_again() -> None:
    made = Quota()
    made.loses_checks = True
    made.check()
    assert "status" not in made.checks[CHECK]
    made.loses_checks = False
    made.pass_time(machines.ACTIVATE_AGAIN_S)
    assert made.checks[CHECK]["status"]["conditions"][0]["status"] == "True"


def test_a_check_with_parameters_is_not_active() -> None:
    made = quota()
    made.check("configured", parameters={"apiGroup": "a", "kind": "B", "name": "c"})
    (condition,) = made.checks["configured"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "BadParametersRef")


def test_a_workload_without_pods_is_ready() -> None:
    made = quota()
    key = made.workload("w", pod_set(count=0))
    made.settle()
    assert made.state(key)["state"] == "Ready"
    assert made.state(key)["message"] == "it has no pods, which fit anywhere"
    assert made.start(key) == []


def test_more_domains_than_pods_are_refused_before_they_are_counted_out() -> None:
    made = quota()
    part = {
        "domainCount": 2**31 - 1,
        "valuesPerLevel": [{"universal": "z"}],
        "podCounts": {"universal": 0},
    }
    given = {"name": "main", "topologyAssignment": {"levels": ["zone"], "slices": [part]}}
    key = made.workload("w", pod_set(), assignments=[given])
    made.settle()
    assert "topologyAssignment of main is not one of 1 pod" in made.state(key)["message"]


def test_what_fits_is_ready_and_its_pods_run() -> None:
    made = quota()
    key = made.workload("w", pod_set(count=3))
    made.settle()
    assert made.state(key)["state"] == "Ready"
    assert made.state(key)["message"] == "3 pods fit into zones now"
    assert "Admitted" in made.conditions(key)
    assert all(made.desk.where(uid) == "n0" for uid in made.start(key))


def test_what_fits_by_totals_alone_is_not_let_start() -> None:
    made = quota(hold_s=0.0)
    key = made.workload("wide", pod_set(cpu="10"))
    made.settle()
    judged = [each for each in made.effects if isinstance(each, Judge)]
    (item,) = judged[-1].items
    assert item["state"] == "Retry"
    assert "NUMA zones" in item["message"]
    assert "zone 1 of n0 is short of 2 CPUs (TopologyAffinityError)" in item["message"]
    assert made.conditions(key) == {"Evicted"}


def test_all_pod_sets_have_to_fit_at_once() -> None:
    made = quota(hold_s=0.0)
    both = made.workload("both", pod_set("driver", cpu="7"), pod_set("workers", 2, cpu="8"))
    made.settle()
    assert made.state(both)["state"] == "Pending"
    one = made.workload("one", pod_set("driver", cpu="7"), pod_set("workers", 1, cpu="8"))
    made.settle()
    assert made.state(one)["state"] == "Ready"


def test_kueue_says_how_many_pods_of_a_set_there_are() -> None:
    made = quota()
    sets = {**pod_set(count=5), "minCount": 2}
    key = made.workload("partial", sets, assignments=[{"name": "main", "count": 3}])
    made.settle()
    assert made.state(key)["state"] == "Ready"


# --- what is promised ----------------------------------------------------------------------------


def test_the_same_room_is_not_promised_twice() -> None:
    made = quota()
    first = made.workload("first", pod_set(count=2))
    second = made.workload("second", pod_set(count=2))
    made.settle()
    assert made.state(first)["state"] == "Ready"
    assert made.state(second)["state"] == "Pending"
    assert "of 4 pods, 2 of them let start before, 3 find a place" in made.state(second)["message"]
    third = made.workload("third", pod_set(count=1))
    made.settle()
    assert made.state(third)["state"] == "Ready"


def test_pods_that_have_a_node_take_what_was_promised() -> None:
    made = quota(nodes=2)
    first = made.workload("first", pod_set(count=3))
    made.settle()
    made.start(first)
    second = made.workload("second", pod_set(count=3))
    made.settle()
    assert made.state(second)["state"] == "Ready"


def test_a_bind_that_fails_gives_the_promise_back() -> None:
    made = quota()
    first = made.workload("first", pod_set(cpu="8"))
    made.settle()
    made.desk.answers = False
    (uid,) = made.start(first)
    assert made.desk.binds
    made.desk.binds.clear()
    made.desk.machine.handle(Bound(uid, Outcome.REFUSED, message="no"), made.desk.now)
    assert len(made.machine._promises) == 1


def test_a_pod_that_is_decided_about_anew_takes_one_place_only() -> None:
    made = quota(nodes=2)
    first = made.workload("first", pod_set(count=2, cpu="8"))
    made.settle()
    made.desk.answers = False
    uids = made.start(first)
    assert len(made.machine._promises) == 0
    # Somebody else has bound one of them, to the other node.
    where = {"n0": "n1", "n1": "n0"}[made.desk.machine.cluster.assumed[uids[0]]]
    made.desk.delete("pods", uids[1])
    obj = made.desk.objects["pods", uids[0]]
    made.desk.put("pods", uids[0], {**obj, "spec": {**obj["spec"], "nodeName": where}})
    assert len(made.machine._promises) == 0


@pytest.mark.parametrize("how", ["finished", "evicted", "deleted", "switched off"])
def test_a_promise_ends_with_its_workload(how: str) -> None:
    made = quota()
    first, second = (
        made.workload("first", pod_set(cpu="8")),
        made.workload("second", pod_set(cpu="8")),
    )
    made.settle()
    assert made.state(second)["state"] == "Pending"
    match how:
        case "finished":
            made.add_condition(first, "Finished")
        case "evicted":
            made.evict(first)
        case "deleted":
            made.delete(first)
        case _:
            made.deactivate(first)
    made.pass_time(machines.AGAIN_S)
    assert made.state(second)["state"] == "Ready"


def test_a_promise_lapses_when_the_pods_do_not_come() -> None:
    made = quota(hold_s=1e6)
    made.workload("first", pod_set(cpu="8"))
    second = made.workload("second", pod_set(cpu="8"))
    made.pass_time(machines.PROMISE_S - 1)
    assert made.state(second)["state"] == "Pending"
    made.pass_time(2)
    assert made.state(second)["state"] == "Ready"


def test_a_promise_stands_while_another_check_is_waited_for() -> None:
    made = quota(hold_s=1e6)
    first = made.workload("first", pod_set(cpu="8"), checks=[CHECK, "provisioning"])
    made.settle()
    second = made.workload("second", pod_set(cpu="8"))
    made.pass_time(2 * machines.PROMISE_S)
    assert made.state(first)["state"] == "Ready"
    assert made.state(first, "provisioning")["state"] == "Pending"
    assert made.state(second)["state"] == "Pending"


def test_who_has_lost_the_promised_room_is_in_nobodys_way() -> None:
    made = quota(nodes=2, hold_s=1e6)
    made.workload("first", pod_set(cpu="8", nodeSelector={"kubernetes.io/hostname": "n0"}))
    made.settle()
    made.desk.delete("nodes", "n0")
    second = made.workload("second", pod_set(cpu="8"))
    made.settle()
    assert made.state(second)["state"] == "Ready"


def test_promises_are_known_after_a_restart() -> None:
    made = quota(nodes=2, hold_s=1e6)
    first = made.workload("first", pod_set(count=3))
    begun = made.workload("begun", pod_set(count=3))
    made.settle()
    made.start(begun)
    made.restart()
    late = made.workload("late", pod_set(count=1))
    made.settle()
    assert made.state(late)["state"] == "Pending"
    made.evict(first)
    made.pass_time(machines.AGAIN_S)
    assert made.state(late)["state"] == "Ready"


# --- what does not fit ---------------------------------------------------------------------------


def test_room_that_comes_is_used_at_once() -> None:
    made = quota()
    first = made.workload("first", pod_set(cpu="8"))
    made.settle()
    made.start(first)
    second = made.workload("second", pod_set(cpu="8"))
    made.settle()
    assert made.state(second)["state"] == "Pending"
    made.finish(first)
    made.pass_time(machines.AGAIN_S)
    assert made.state(second)["state"] == "Ready"


def test_what_cannot_help_is_not_tried_again() -> None:
    made = quota(hold_s=1e6)
    made.workload("wide", pod_set(cpu="10"))
    made.settle()
    tries = 0
    rehearse = made.desk.machine.rehearse

    def count(*args: object) -> str:
        nonlocal tries
        tries += 1
        return rehearse(*args)  # type: ignore[arg-type]

    made.desk.machine.rehearse = count  # type: ignore[method-assign]
    for _ in range(5):
        made.desk.pod(cpu="1")
        made.pass_time(10)
    assert tries == 0


def test_the_quota_is_given_back_after_a_time_and_ever_later_asked_for() -> None:
    made = quota(hold_s=30.0)
    key = made.workload("wide", pod_set(cpu="10"))
    made.pass_time(29)
    assert made.state(key)["state"] == "Pending"
    assert "QuotaReserved" in made.conditions(key)
    waits = []
    for _ in range(8):
        made.pass_time(31)
        assert made.conditions(key) == {"Evicted"}
        waits.append(made.requeue[key] - made.desk.now)
        made.reserve(key)
        made.pass_time(0)
    after = [made.state(key)["retryCount"]]
    assert after == [8]
    judged = [each.items[0] for each in made.effects if isinstance(each, Judge)]
    asked = [each["requeueAfterSeconds"] for each in judged if each["state"] == "Retry"]
    assert asked == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_flavor_that_is_not_there_yet_is_waited_for() -> None:
    made = quota()
    made.desk.label("n0", pool="a")
    given = [{"name": "main", "count": 1, "flavors": {"cpu": "a", "memory": "a"}}]
    key = made.workload("w", assignments=given)
    made.settle()
    assert made.state(key)["message"] == "its ResourceFlavor a is not there"
    made.flavor("a", nodeLabels={"pool": "a"})
    made.pass_time(machines.AGAIN_S)
    assert made.state(key)["state"] == "Ready"


def test_promises_are_known_after_a_restart_whatever_is_listed_first() -> None:
    made = quota()
    made.flavor("a")
    given = [{"name": "main", "flavors": {"cpu": "a"}}]
    made.workload("first", pod_set(cpu="8"), assignments=given)
    made.settle()
    made.first_listed = (WORKLOADS, CHECKS, FLAVORS)
    made.restart()
    assert len(made.machine._promises) == 1


def test_flavors_say_on_which_nodes_it_has_to_fit() -> None:
    made = quota(nodes=2, hold_s=1e6)
    made.desk.label("n0", pool="a")
    made.flavor("a", nodeLabels={"pool": "a"})
    given = [{"name": "main", "flavors": {"cpu": "a"}}]
    first = made.workload("first", pod_set(count=3), assignments=given)
    second = made.workload("second", pod_set(count=1), assignments=given)
    made.settle()
    assert made.state(first)["state"] == "Ready"
    assert made.state(second)["state"] == "Pending"


def test_pods_that_can_never_be_read_are_rejected() -> None:
    made = quota()
    broken = pod_set()
    broken["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    key = made.workload("broken", broken)
    made.settle()
    assert made.state(key)["state"] == "Rejected"
    assert "many" in made.state(key)["message"]
    assert made.workloads[key]["spec"]["active"] is False


def test_the_reason_is_told_although_a_write_of_it_failed() -> None:
    made = quota()
    made.writes = False
    key = made.workload("wide", pod_set(cpu="10"))
    made.settle()
    made.put(key, made.workloads[key])
    made.writes = True
    made.write()
    made.pass_time(machines.AGAIN_S)
    assert "is short of 2 CPUs" in made.state(key)["message"]


def test_a_pod_that_fits_nowhere_by_itself_is_told_as_to_its_own_pod() -> None:
    made = quota()
    key = made.workload("elsewhere", pod_set(nodeSelector={"pool": "b"}))
    made.settle()
    assert "default/elsewhere-main-0: 0/1 nodes are available" in made.state(key)["message"]


# --- beside others -------------------------------------------------------------------------------


def test_a_workload_that_has_changed_meanwhile_is_judged_anew() -> None:
    made = quota()
    made.writes = False
    key = made.workload("w")
    made.settle()
    made.put(key, made.workloads[key])
    made.writes = True
    made.write()
    assert made.state(key)["state"] == "Pending"
    made.pass_time(machines.AGAIN_S)
    assert made.state(key)["state"] == "Ready"


def late(made: Quota, key: str) -> None:
    """The answer about a Workload is found out, and told when it is known to be late."""
    assert [each.key for each in made.asked] == [key]
    made.answers = True
    made.answer()
    made.settle()


def test_room_that_was_taken_while_it_was_found_out_is_not_promised() -> None:
    made = quota()
    made.answers = False
    key = made.workload("w", pod_set(cpu="8"))
    made.settle()
    made.desk.pod(cpu="8")
    made.desk.run_all()
    late(made, key)
    assert made.state(key)["state"] == "Pending"


def test_a_workload_that_has_changed_while_it_was_found_out_is_tried_anew() -> None:
    made = quota()
    made.answers = False
    key = made.workload("w", pod_set(count=3))
    made.settle()
    body = made.workloads[key]
    made.put(key, {**body, "spec": {**body["spec"], "podSets": [pod_set(count=4)]}})
    late(made, key)
    made.pass_time(machines.AGAIN_S)
    assert made.state(key)["state"] == "Pending"
    assert "of 4 pods 3 find a place" in made.state(key)["message"]


def test_room_that_is_wanted_again_is_not_promised_meanwhile() -> None:
    made = quota(nodes=2)
    first = made.workload("first", pod_set(cpu="8"))
    made.settle()
    made.desk.answers = False
    (uid,) = made.start(first)
    made.answers = False
    second = made.workload("second", pod_set(cpu="8"))
    made.settle()
    # While the other node is found for the second one, the first one loses its own.
    made.desk.delete("nodes", made.desk.machine.cluster.assumed[uid])
    made.desk.machine.handle(Bound(uid, Outcome.REFUSED, message="no"), made.desk.now)
    late(made, second)
    made.pass_time(machines.AGAIN_S)
    assert made.state(second)["state"] == "Pending"


def test_a_promise_whose_write_failed_is_none() -> None:
    made = quota(hold_s=1e6)
    made.writes = False
    first = made.workload("first", pod_set(cpu="8"))
    made.settle()
    made.evict(first)
    made.writes = True
    made.write()
    second = made.workload("second", pod_set(cpu="8"))
    made.settle()
    assert made.state(second)["state"] == "Ready"


def test_one_that_stands_by_writes_nothing() -> None:
    made = quota()
    made.handle(Leading(active=False))
    key = made.workload("w")
    made.pass_time(100)
    assert made.state(key)["state"] == "Pending"
    made.handle(Leading(active=True))
    made.settle()
    assert made.state(key)["state"] == "Ready"


def test_workloads_without_our_check_are_left_alone() -> None:
    made = quota()
    key = made.workload("other", checks=["provisioning"])
    made.pass_time(100)
    assert made.state(key, "provisioning")["state"] == "Pending"
    assert not [each for each in made.effects if isinstance(each, Judge)]


def test_a_check_that_comes_later_finds_its_workloads() -> None:
    made = Quota()
    made.desk.node("n0")
    key = made.workload("w")
    made.pass_time(1)
    assert made.state(key)["state"] == "Pending"
    made.check()
    made.settle()
    assert made.state(key)["state"] == "Ready"


def test_pods_that_need_no_zone_fit_where_zones_are_not_known() -> None:
    made = Quota()
    made.desk.node("bare", bare=True)
    made.check()
    key = made.workload("plain", pod_set(cpu="2", guaranteed=False, count=3))
    made.settle()
    assert made.state(key)["state"] == "Ready"


def test_the_more_important_one_goes_first() -> None:
    made = Quota()
    made.desk.node("n0", state(policy="none"))
    low = made.workload("low", pod_set(cpu="10"), priority=1)
    high = made.workload("high", pod_set(cpu="10"), priority=2)
    made.check()
    made.settle()
    assert made.state(high)["state"] == "Ready"
    assert made.state(low)["state"] == "Pending"


# --- devices of DRA: two GPUs on each of n0's zones ---


def quota_with_gpus(*zones: int, **options: float) -> Quota:
    made = quota(**options)
    made.desk.put("device-classes", "gpu", gpus.gpu_class())
    made.desk.put("slices", "n0-gpus", gpus.slice_of("n0", zones or (0, 0, 1, 1)))
    return made


def with_gpu(template: str = "gpu", **options: Any) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return pod_set(resourceClaims=claims, **options)


def test_claims_that_templates_will_make_are_judged_before_they_exist() -> None:
    made = quota_with_gpus(hold_s=0.0)
    made.template(gpus.claim("gpu"))
    three = made.workload("three", with_gpu(count=3, cpu="2"))
    made.settle()
    assert made.state(three)["state"] == "Ready"
    assert made.desk.machine.cluster.devices.claims == {}
    # One GPU is left beside those that are promised.
    two = made.workload("two", with_gpu(count=2, cpu="1"))
    made.settle()
    assert made.conditions(two) == {"Evicted"}
    one = made.workload("one", with_gpu(count=1, cpu="1"))
    made.settle()
    assert made.state(one)["state"] == "Ready"


@pytest.mark.parametrize(("zone", "state"), [(0, "Ready"), (1, "Pending")])
def test_devices_have_to_be_beside_the_cpus_where_that_is_required(zone: int, state: str) -> None:
    """The kubelet gives CPUs of zone 0 first."""
    made = quota_with_gpus(zone, zone, hold_s=0.0)
    made.template(gpus.claim("gpu"))
    required = with_gpu()
    required["template"]["metadata"]["annotations"] = {gpus.ALIGNMENT: "required"}
    key = made.workload("w", required)
    made.settle()
    assert made.state(key)["state"] == state


def test_a_template_that_is_missing_is_named_and_waited_for() -> None:
    made = quota_with_gpus()
    key = made.workload("w", with_gpu("big"))
    made.settle()
    assert made.state(key)["state"] == "Pending"
    assert "ResourceClaimTemplate default/big is not there" in made.state(key)["message"]
    made.pass_time(6.0)
    made.template(gpus.claim("big", 5))
    made.pass_time(1.0)
    assert made.state(key)["state"] == "Pending"
    assert "device" in made.state(key)["message"]
    made.template(gpus.claim("big", 2))
    made.pass_time(1.0)
    assert made.state(key)["state"] == "Ready"


def test_promised_devices_are_known_after_a_restart() -> None:
    made = quota_with_gpus(hold_s=0.0)
    made.template(gpus.claim("gpu", 3))
    first = made.workload("first", with_gpu())
    made.settle()
    assert made.state(first)["state"] == "Ready"
    made.restart()
    second = made.workload("second", with_gpu())
    made.settle()
    assert made.conditions(second) == {"Evicted"}
