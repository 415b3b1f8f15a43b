"""What differs between releases: every change by its name, and how a version finds its rules."""

import dataclasses
import sys
from pathlib import Path

import pytest

from rte import errors, placement
from rte.model import bits
from rte.model.node import CPUInfo, Topology
from rte.model.pod import QOS
from rte.placement.kubelet import outcome, releases
from rte.placement.kubelet.cpu import pickers, static
from rte.placement.kubelet.demand import qos_class
from rte.placement.kubelet.releases import Release, ReleaseChange
from rte.placement.kubelet.rules import build_rules, rules_of
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod
from tests.unit.placement.kubelet.test_podlevel import node as podlevel_node
from tests.unit.placement.kubelet.test_podlevel import whole

NEWEST = f"v1.{max(releases.NEWEST_PATCH)}.{releases.NEWEST_PATCH[max(releases.NEWEST_PATCH)]}"


def rules_in(version, **settings):
    return rules_of(build.config(**settings), version)


# Versions


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.35.4", Release(35, 4)),
        ("1.36.0-rc.1", Release(36, 0)),
        ("v1.34.2+k3s1", Release(34, 2)),
        ("v1.36.2-eks-1a2b", Release(36, 2)),
        ("v1.37", Release(37, 0)),
        ("v1.9", None),
        ("v1.38.0-alpha.1", Release(38, 0)),
        ("v1.39.0", None),
        ("v2.35.0", None),
        ("", None),
    ],
)
def test_a_version_names_its_release(version, release):
    assert releases.known(version) == release


def test_a_patch_newer_than_all_known_gets_the_newest_rules_and_says_so():
    assert releases.known("v1.36.99") == Release(36, releases.NEWEST_PATCH[36])
    assert rules_in("v1.36.99").assumed
    assert dataclasses.replace(rules_in("v1.36.99"), assumed=False) == rules_in("v1.36.0")
    assert not rules_in(NEWEST).assumed


def test_an_unknown_minor_release_is_last_resort_and_says_what_to_wait_for():
    answer = placement.admit(
        dataclasses.replace(build.node(), kubelet_version="v1.39.1"), build.simple("a")
    )
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.UNKNOWN_VERSION)
    assert answer.message == (
        "no rules for kubelet v1.39.1: 1.34 to 1.38 are known; wait for the release of rte that "
        "lists 1.39"
    )


def test_nobody_waits_for_an_old_release():
    assert releases.why_unknown("v1.33.1") == (
        "no rules for kubelet v1.33.1: 1.34 to 1.38 are known"
    )
    assert releases.why_unknown("").startswith("no rules for kubelet of unknown version")


def test_a_new_release_is_one_entry_and_its_changes(monkeypatch):
    monkeypatch.setitem(releases.NEWEST_PATCH, 39, 0)
    newest = build_rules(build.config(), Release(38))
    assert rules_in("v1.39.0") == newest
    assert "wait for the release of rte that lists 1.40" in releases.why_unknown("v1.40.0")


def test_a_release_that_was_only_read_of_is_assumed_and_says_so():
    assert rules_in("v1.38.0").assumed
    assert releases.assumption("v1.38.0-alpha.1") == (
        "kubelet v1.38.0-alpha.1: its rules are read from published changes, and not yet proven"
    )
    assert placement.admit(
        dataclasses.replace(build.node(), kubelet_version="v1.38.0"), build.simple("a")
    ).admitted


def test_a_change_is_in_all_later_releases_and_in_its_backports():
    change = ReleaseChange(
        name="", since=Release(36, 2), backports=(Release(34, 8),), what="", before="", source=""
    )
    having = [(34, 8), (34, 9), (36, 2), (36, 3), (37, 0)]
    lacking = [(34, 7), (35, 0), (35, 9), (36, 1)]
    assert all(change.is_in(Release(*release)) for release in having)
    assert not any(change.is_in(Release(*release)) for release in lacking)


# The table


def test_every_change_has_a_test_of_its_name():
    tests = vars(sys.modules[__name__])
    missing = [
        change.name
        for change in releases.CHANGES
        if f"test_{change.name.replace('-', '_')}" not in tests
    ]
    assert missing == []


def test_the_documentation_has_the_table():
    page = Path(__file__).parents[4] / "docs" / "placement.md"
    assert f"\n\n{releases.table()}\n\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "maturities"),
    [
        ("strict-cpu-reservation", ["Beta", "Stable", "Stable", "Stable"]),
        ("prefer-align-cpus-by-uncorecache", ["Beta", "Beta", "Stable", "Stable"]),
        ("align-by-socket", ["Alpha"] * 4),
        ("full-pcpus-only", ["Stable"] * 4),
    ],
)
def test_options_mature(option, maturities):
    for minor, maturity in zip((34, 35, 36, 37), maturities, strict=True):
        gates = {f"CPUManagerPolicy{name}Options": name != maturity for name in ("Alpha", "Beta")}
        settings = {"cpu_options": {option: "true"}, "feature_gates": gates}
        if maturity == "Stable":  # needs no gate
            assert build.node(policy="none", version=f"v1.{minor}.0", **settings)
            continue
        with pytest.raises(errors.KubeletStartError, match=f"{maturity}-level Options not enabled"):
            build.node(policy="none", version=f"v1.{minor}.0", **settings)


# Change by change


def test_any_container_runs():
    assert not rules_in("v1.34.7").any_container_runs
    assert rules_in("v1.34.8").any_container_runs
    assert rules_in("v1.35.0").any_container_runs


def test_device_zones_only():
    """Two devices of one zone: until 1.35 a wide hint stands beside the narrow one."""

    def device_hints(version):
        state = build.node(devices={GPU: build.pool(0, 0)}, version=version)
        return placement.admit(state, build.simple("a", gpus=1)).merges[0].providers[0][GPU]

    assert device_hints("v1.35.4") == [(1, True), (3, False)]
    assert device_hints("v1.36.0") == [(1, True)]


def test_stanza_always_left_alone():
    """Without the gate of the stanza, kubelets up to 1.35 serve its containers like others."""
    gates = {**build.ALPHA, "PodLevelResources": False}
    whole = pod("a", container(cpus=2, memory=1), pod_requests={"cpu": 2000}, pod_limits={})

    def cpus(version):
        state = build.node(version=version, feature_gates=gates)
        return placement.admit(state, whole).state.shared != state.shared

    assert cpus("v1.35.4")
    assert not cpus("v1.36.0")


def test_pod_level_managers():
    gates = {"PodLevelResourceManagers": True}
    assert not rules_in("v1.35.4", feature_gates=gates).pod_level_managers
    assert rules_in("v1.36.0", feature_gates=gates).pod_level_managers
    assert not rules_in("v1.37.0").pod_level_managers


def test_memoryless_skipped():
    """No hint, and nothing to hold: until 1.36 the memory manager looks for its own hint."""
    cpus_only = pod("a", container(cpus=2))
    before = placement.admit(build.node(policy="none", version="v1.36.4"), cpus_only)
    assert before.message.startswith(
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity"
    )
    assert placement.admit(build.node(policy="none", version="v1.37.0"), cpus_only).admitted


@pytest.mark.parametrize(("version", "kept"), [("v1.36.4", False), ("v1.37.0", True)])
def test_held_cores_kept(version, kept):
    options = {"full-pcpus-only": "true"}
    state = build.node(policy="none", version=version, cpu_options=options)
    running = build.simple("a", 8)
    again = placement.restart(build.filled(state, running), [running])
    assert again.admissions["a"].admitted is kept
    if not kept:
        assert again.admissions["a"].reason == outcome.SMT_ALIGNMENT_ERROR


def test_distribution_in_socket():
    """Zones 1 and 2 leave the node most even, but only zones 2 and 3 are one socket with room."""
    machine = pickers.layout_of(build.topology(sockets=2, zones=2, cores=4, threads=1))
    free = bits.parse_list("1-2,5-7,9-13,15")

    def picked(version):
        return bits.format_list(static.take(machine, distributing(version), free, 6))

    assert picked("v1.36.4") == "5-7,9-11"
    assert picked("v1.37.0") == "9-13,15"


def test_share_lowered():
    """Slice sharing puts a zone of three CPUs in the place of one that has the share of four."""
    of_five = tuple(CPUInfo(cpu, cpu, int(cpu >= 20), cpu // 5, 0) for cpu in range(60))
    machine = pickers.layout_of(Topology(cpus=of_five, zones=(), sockets=2))
    free = bits.of(cpu for cpu in range(60) if cpu < 20 or cpu % 5 < 3)

    with pytest.raises(outcome.AllocationRefused, match="accounting error, not enough CPUs"):
        static.take(machine, distributing("v1.36.4"), free, 18)
    assert bits.format_list(static.take(machine, distributing("v1.37.0"), free, 18)) == (
        "0-13,15,55-57"
    )
    with pytest.raises(outcome.Breaks, match="would never end"):
        static.take(machine, distributing("v1.37.0"), free, 16)


def test_cores_by_topology():
    """Siblings have neighbouring ids; the second of each core comes when all had a turn."""
    of_two = tuple(CPUInfo(cpu, cpu // 2, 0, 0, 0) for cpu in range(8))
    machine = pickers.layout_of(Topology(cpus=of_two, zones=(), sockets=1))
    options = {"distribute-cpus-across-cores": "true"}

    def taken(version, free, count):
        rules = rules_in(version, policy="none", cpu_options=options)
        return bits.format_list(static.take(machine, rules.cpu, free, count))

    assert taken("v1.37.2", 0xFF, 4) == "0-3"
    assert taken("v1.38.0", 0xFF, 4) == "0,2,4,6"
    assert taken("v1.38.0", 0xFF, 5) == "0-2,4,6"
    # The core with fewest free CPUs comes first.
    assert taken("v1.38.0", 0b11111011, 2) == "0,3"
    assert taken("v1.38.0", 0b11110111, 1) == "2"


def test_pod_cpus_restored():
    only = whole("a", container("own", cpus=3, memory=3), cpus=3, memory=3)
    for version, same in (("v1.37.2", False), ("v1.38.0", True)):
        state = dataclasses.replace(podlevel_node(), kubelet_version=version)
        before = build.filled(state, only)
        again = placement.restart(before, [only])
        assert again.admissions["a"].admitted
        assert (again.state.pod_holdings["a"].cpus == before.pod_holdings["a"].cpus) is same
    # No CPU is lost with the pod.
    assert placement.remove(again.state, "a").shared == state.shared


def distributing(version):
    options = {"distribute-cpus-across-numa": "true", "align-by-socket": "true"}
    return rules_in(version, policy="none", cpu_options=options).cpu


def test_qos_by_container():
    """Requests above the limit of one container, below that of another (no API server lets it)."""
    one = dataclasses.replace(container("x", cpus=1, memory=1), limits={"cpu": 2000, "memory": 1})
    other = dataclasses.replace(one, name="y", requests=one.limits, limits=one.requests)
    odd = pod("a", one, other)
    assert qos_class(odd, rules_in("v1.36.4")) is QOS.GUARANTEED
    assert qos_class(odd, rules_in("v1.37.0")) is QOS.BURSTABLE


def test_empty_stanza_absent():
    whole = pod("a", container(cpus=1, memory=1), pod_requests={}, pod_limits={})
    unfixed = {"PodLevelResourcesFixKubeletQOSClass": False}
    assert qos_class(whole, rules_in("v1.36.4")) is QOS.BEST_EFFORT
    assert qos_class(whole, rules_in("v1.37.0")) is QOS.GUARANTEED
    assert qos_class(whole, rules_in("v1.37.0", feature_gates=unfixed)) is QOS.BEST_EFFORT
