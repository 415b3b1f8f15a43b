"""NHD's formats: its configuration file in and out, its labels, its sets of pods."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rte import errors
from rte.placement.groups import facts
from rte.placement.groups.allocation import QueueCPUs, Record, devices_of
from rte.placement.groups.document import RequestError
from rte.placement.groups.holdings import used_by
from rte.placement.groups.nhd import labels, libconfig, triad, triadset
from rte.placement.groups.nhd.adopt import AdoptionError, adopt
from rte.placement.groups.nhd.export import ExportError, write_back
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.place import place
from rte.placement.groups.request import ANNOTATION
from tests.unit.placement.groups.nodes import two_sockets

FILE = """
Hugepages_GB = 4;   # for the whole pod
Ctl : { c0 = -1; c1 = -2; vlan = 0; };
Mod = ( { module = "m0"; vlan = 0; h0 = -20; h1 = [ -21 ];
          dp = ( { rx_cores=[1000]; tx_cores=[2000]; rx_speeds=[10.0]; tx_speeds=[5.0];
                   cpu_workers=[4000,4001]; gpu_map=((3000,0),(3001,1)); } ); } );
TopologyCfg : { cpu_arch="ANY"; map_type="NUMA"; ext_cores=("Ctl.c0","Ctl.c1");
  ext_cores_smt=true; kni_vlan="Ctl.vlan";
  mod_defs=( { module="Mod"; helper_cores=["h0","h1"]; helper_cores_smt=true; data_vlan="vlan";
               dp_group={ name="dp"; proc_cores_smt=true; gpu_type="V100"; }; } ); };
"""

scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9, places=4)
    | st.text(max_size=8)
)
names = st.from_regex(r"[A-Za-z][-A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name.lower() not in {"true", "false"}
)
settings_ = st.dictionaries(
    names,
    st.recursive(
        scalars | st.lists(scalars, max_size=3),
        lambda inner: (
            st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
        ),
        max_leaves=10,
    ),
    max_size=4,
)


@given(settings_)
def test_what_is_written_is_read_back(settings: dict[str, Any]) -> None:
    assert libconfig.parse(libconfig.write(settings)) == settings


def test_the_forms_of_the_format() -> None:
    text = """
    a = 0x1F; b : 12L, c = -0.5e1 d = TRUE;   // no separator is fine
    e = "one " "two\\n\\x41\\"";  /* over
    lines */ f = [ 1, 2, ]; g = ( [ 0b101 ], { h = ( ); }, );
    """

    assert libconfig.parse(text) == {
        "a": 31,
        "b": 12,
        "c": Decimal(-5),
        "d": True,
        "e": 'one two\nA"',
        "f": [1, 2],
        "g": ([5], {"h": ()}),
    }


@pytest.mark.parametrize(
    "text",
    ["a", "a =", "a = ;", "a = (", "a = [ (1) ];", "a = 1; a = 2;", "= 1", 'a = "', "a = {",
     "a = 99999999999999999999;", '@include "/etc/passwd"', "a = " + "(" * 100_000, "a = 'x';",
     "a = " + "9" * 10_000 + ";"],
)  # fmt: skip
def test_what_is_no_libconfig_is_told_with_its_line(text: str) -> None:
    with pytest.raises(errors.ParseError, match="line 1"):
        libconfig.parse(text)


@given(st.text(alphabet='aT12.-=:;,(){}[]"\\ \n#/*', max_size=40))
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        libconfig.parse(text)
    except errors.ParseError as error:
        assert "\n" not in str(error)


@given(st.data())
def test_no_damaged_file_crashes_the_import(data: st.DataObject) -> None:
    tokens = FILE.split(" ")
    start = data.draw(st.integers(0, len(tokens) - 1))
    tokens[start : start + data.draw(st.integers(0, 4))] = data.draw(
        st.lists(st.sampled_from(['"x"', "0", "[1]", "(", ");", "{};", "true", "Mod", "=", "-1.5"]))
    )
    try:
        triad.read(" ".join(tokens))
    except RequestError as error:
        assert error.code
        assert "\n" not in str(error)


def test_a_file_becomes_a_request() -> None:
    got = triad.read(FILE)

    assert got.document["hugepages"] == {"1Gi": 4}
    assert got.document["misc"] == {"count": 2, "smt": "share"}
    (group,) = parse_request(json.dumps(got.document)).groups
    assert group.name == "mod-0"
    assert [gpu.models for gpu in group.gpus] == [("V100",), ("V100",)]
    assert (group.workers, group.helpers.count) == (2, 2)
    assert got.fields["Mod[0].h1[0]"] == "groups[0].helpers[1]"


def allocated(values: dict[str, str] | None = None) -> tuple[triad.Triad, Record]:
    imported = triad.read(FILE)
    node = two_sockets()
    allocation = place(parse_request(json.dumps(imported.document)), node).allocation
    assert allocation is not None
    return imported, Record(
        pod="u",
        node="n",
        allocation=allocation,
        devices=devices_of(allocation, node)
        | {"0000:17:20.0": {"name": "e0p0", "mac": "02:00:00:00:00:0a", "pf": None, "rdma": ""}},
        values={"vlan": "100", "gateway": "10.1.0.1"} if values is None else values,
    )


def test_the_ids_are_written_into_the_file() -> None:
    imported, record = allocated()
    (group,) = record.allocation.groups
    back: Any = libconfig.parse(write_back(imported, record))

    assert back["Mod"][0]["dp"][0]["rx_cores"] == [group.cpus.queues[0].rx]
    assert back["Mod"][0]["dp"][0]["cpu_workers"] == [*group.cpus.workers]
    assert back["Mod"][0]["dp"][0]["gpu_map"] == (
        (group.cpus.feeders[0][0], 0),
        (group.cpus.feeders[1][0], 1),
    )
    assert back["Mod"][0]["h1"] == [group.cpus.helpers[1]]
    assert (back["Ctl"]["c0"], back["Ctl"]["vlan"], back["Mod"][0]["vlan"]) == (
        record.allocation.misc.cpus[0],
        100,
        100,
    )
    (nic,) = back["Network_Config"]
    assert nic["mac"] == "02:00:00:00:00:0A"
    assert (nic["rxCores"], nic["txCores"]) == (
        [group.cpus.queues[0].rx],
        [group.cpus.queues[0].tx],
    )
    assert nic["gwIps"] == ["10.1.0.1"]
    assert back["TopologyCfg"] == imported.settings["TopologyCfg"]


def test_a_record_that_lacks_what_the_file_names_is_told() -> None:
    imported, record = allocated(values={})

    with pytest.raises(ExportError, match=r"values\.vlan"):
        write_back(imported, record)


LABELS = {
    f"{labels.PREFIX}nfd-extras-cpu.numSockets": "2",
    f"{labels.PREFIX}nfd-extras-cpu.num_cores": "16",
    f"{labels.PREFIX}cpu-hardware_multithreading": "true",
    f"{labels.PREFIX}nfd-extras-cpu.isolcpus": "2-7_10-15_18-23_26-31",
    f"{labels.PREFIX}nfd-extras-nic.ens1.mlx.0200000000AA.100000Mbs.0.17.1.0": "true",
    f"{labels.PREFIX}nfd-extras-nic.ens2.mlx.0200000000AB.down.1.ae.1.0": "true",
    f"{labels.PREFIX}nfd-extras-nic.pf0.mlx.0200000000AC.100000Mbs.1.ae.1.0": "true",
    f"{labels.PREFIX}nfd-extras-sriov.x.pf0": "true",
    f"{labels.PREFIX}nfd-extras-gpu.0.V100.0.17": "true",
    f"{labels.PREFIX}nfd-extras-gpu.1.V100.0.17": "true",
    "NHD_GROUP": "b.a",
    "DATA_PLANE_VLAN": "100",
    "DATA_DEFAULT_GW": "10.1.0.1",
    "RES_HUGEPAGES_GB": "2",
}


def test_labels_become_an_inventory_that_pods_are_placed_on() -> None:
    node = labels.read(LABELS, {"hugepages-1Gi": "8Gi"})
    inventory = node.inventory

    assert [core.cpus for core in inventory.cores[:2]] == [(0, 16), (1, 17)]
    assert [nic.address for nic in inventory.nics] == ["ens1", "ens2"]
    assert (inventory.nics[0].mac, inventory.nics[1].link) == ("02:00:00:00:00:aa", "down")
    assert inventory.pages == {0: {"1Gi": 4}, 1: {"1Gi": 4}}
    assert (node.facts.groups, node.values["vlan"]) == (("a", "b"), "100")
    wish = {"name": "a", "gpus": [{"match": {"model": "V100"}}], "queues": [{"rx": 90}]}
    request = parse_request(json.dumps({"version": 1, "mapping": "pcie", "groups": [wish]}))
    got = place(request, inventory).allocation
    assert got is not None
    assert (got.groups[0].gpus, got.groups[0].cpus.queues) == (("gpu0",), (QueueCPUs(2, 18),))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{labels.PREFIX}nfd-extras-cpu.numSockets", "many"),
        (f"{labels.PREFIX}nfd-extras-cpu.num_cores", "15"),
        (f"{labels.PREFIX}nfd-extras-cpu.isolcpus", "7-2"),
        (f"{labels.PREFIX}nfd-extras-nic.ens3.mlx", "true"),
        (f"{labels.PREFIX}nfd-extras-nic.e.m.nomac.100Mbs.0.17.1.0", "true"),
        (f"{labels.PREFIX}nfd-extras-gpu.1.V100.0.switch", "true"),
        ("RES_HUGEPAGES_GB", "-1"),
    ],
)
def test_labels_of_the_wrong_form_are_told(key: str, value: str) -> None:
    with pytest.raises(errors.ParseError):
        labels.read({**LABELS, key: value}, {})


@pytest.mark.parametrize(
    ("value", "wanted"), [("not_scheduled", False), ("", False), ("false", False), ("now", True)]
)
def test_maintenance_is_what_is_meant(value: str, wanted: bool) -> None:
    assert labels.read({**LABELS, facts.NHD_MAINTENANCE: value}, {}).facts.maintenance == wanted


def triad_set(**spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {
            "labels": {"app": "radio"},
            "annotations": {
                "sigproc.viasat.io/cfg_type": "triad",
                "sigproc.viasat.io/nhd_groups": "b, a",
                "mine": "kept",
            },
        },
        "spec": {
            "schedulerName": "nhd-scheduler",
            "volumes": [{"name": "c", "configMap": {"name": "radio-cfg"}}],
        },
    }
    return {
        "kind": "TriadSet",
        "metadata": {"name": "radio", "namespace": "prod"},
        "spec": {
            "replicas": 3,
            "serviceName": "rx",
            "selector": {"matchLabels": {"app": "radio"}},
            "template": template,
            **spec,
        },
    }


def test_a_triad_set_becomes_a_stateful_set_with_the_same_names_in_dns() -> None:
    got = triadset.convert(triad_set(), {"radio-cfg": {"radio.cfg": FILE}}, "rte-scheduler")

    assert (got["metadata"]["name"], got["spec"]["serviceName"]) == ("rx", "radio")
    assert (got["spec"]["replicas"], got["spec"]["podManagementPolicy"]) == (3, "Parallel")
    template = got["spec"]["template"]
    assert template["spec"]["schedulerName"] == "rte-scheduler"
    assert set(template["metadata"]["annotations"]) == {"mine", ANNOTATION}
    assert parse_request(template["metadata"]["annotations"][ANNOTATION]).node_groups == ("a", "b")


def test_without_its_configuration_the_request_is_left_to_the_user() -> None:
    template = triadset.convert(triad_set(), {}, "rte-scheduler")["spec"]["template"]

    assert template["metadata"]["annotations"] == {"mine": "kept"}


def test_a_triad_set_without_what_its_crd_requires_is_told() -> None:
    with pytest.raises(errors.ParseError, match="serviceName"):
        triadset.convert(triad_set(serviceName=""), {}, "rte-scheduler")


def test_a_pod_that_nhd_has_placed_is_adopted_with_all_that_it_holds() -> None:
    imported, record = allocated()
    node = two_sockets()
    macs = {"0000:17:20.0": "02:00:00:00:00:0a"}
    node = replace(
        node, nics=tuple(replace(nic, mac=macs.get(nic.address, "")) for nic in node.nics)
    )

    got = adopt(triad.read(write_back(imported, record)), node)

    (group,), (was,) = got.groups, record.allocation.groups
    assert structs.replace(group, zone=was.zone) == was
    assert got.misc.cpus == record.allocation.misc.cpus
    used, before = used_by({"u": got}), used_by({"u": record.allocation})
    assert (used.cpus, used.gpus, used.nics) == (before.cpus, before.gpus, before.nics)
    assert (used.pages, used.pages_anywhere) == ({}, {"1Gi": 4})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [('mac = "02', 'mac = "03', "names no NIC"), ("), ( 3, 1 )", "), ( 3, 9 )", "no GPU 9")],
)
def test_what_the_node_does_not_have_cannot_be_adopted(old: str, new: str, why: str) -> None:
    imported, record = allocated()
    text = write_back(imported, record)
    (group,) = record.allocation.groups
    old, new = (part.replace("( 3,", f"( {group.cpus.feeders[1][0]},") for part in (old, new))
    assert old in text
    node = replace(
        two_sockets(),
        nics=tuple(replace(nic, mac="02:00:00:00:00:0a") for nic in two_sockets().nics[:1]),
    )

    with pytest.raises(AdoptionError, match=why):
        adopt(triad.read(text.replace(old, new)), node)


def test_a_file_without_ids_is_not_adopted() -> None:
    bare = FILE.replace("rx_speeds=[10.0]; tx_speeds=[5.0]", "rx_speeds=[0]; tx_speeds=[0]")

    with pytest.raises(AdoptionError, match="no CPUs yet"):
        adopt(triad.read(bare.replace("3000", "-1")), two_sockets())
