from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.kubelet import config as kubelet_config
from rte.kubelet import config_document, config_flags
from rte.model.node import KubeletConfig
from tests.depth import scaled
from tests.processes import add_process
from tests.unit.kubelet.test_statefiles import json_values

GIB = 1 << 30
MIB = 1 << 20
HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"


def effective(memory_bytes: int = 64 * GIB, **config: Any) -> KubeletConfig:
    return kubelet_config.effective(config, memory_bytes=memory_bytes, where="test")


def from_text(text: str, directory: Path, *flags: str, **drop_ins: str) -> KubeletConfig:
    file, drop_in_dir = directory / "config.yaml", directory / "config.d"
    file.write_text(HEAD + text)
    drop_in_dir.mkdir()
    for name, content in drop_ins.items():
        (drop_in_dir / name.replace("_", ".")).write_text(HEAD + content)
    return kubelet_config.from_files(file, drop_in_dir, flags=flags, memory_bytes=64 * GIB)


def test_nothing_configured_gives_the_kubelets_defaults() -> None:
    assert effective() == KubeletConfig(
        topology_policy="none",
        topology_scope="container",
        cpu_policy="none",
        memory_policy="None",
        max_pods=110,
    )


def test_every_key_is_read() -> None:
    assert effective(
        topologyManagerPolicy="restricted",
        topologyManagerScope="pod",
        topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"},
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={
            "strict-cpu-reservation": "true",
            "full-pcpus-only": "true",
        },
        reservedSystemCPUs="0-1,8",
        memoryManagerPolicy="Static",
        reservedMemory=[
            {"numaNode": 1, "limits": {"memory": "512Mi", "hugepages-2Mi": "64Mi"}},
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
        ],
        systemReserved={"memory": "1Gi", "cpu": "500m"},
        kubeReserved={"memory": "412Mi", "cpu": "1"},
        evictionHard={"memory.available": "100Mi", "nodefs.available": "10%"},
        featureGates={"PodLevelResources": False},
        maxPods=250,
    ) == KubeletConfig(
        topology_policy="restricted",
        topology_scope="pod",
        topology_options={"prefer-closest-numa-nodes": "true"},
        cpu_policy="static",
        cpu_options={"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
        reserved_cpus=0b1_0000_0011,
        cpu_reservation_milli=3000,
        memory_policy="Static",
        reserved_memory={
            0: {"memory": GIB},
            1: {"hugepages-2Mi": 64 * MIB, "memory": 512 * MIB},
        },
        node_reserved={"cpu": 3000, "memory": GIB + 512 * MIB},
        feature_gates={"PodLevelResources": False},
        max_pods=250,
    )


def test_an_amount_of_cpus_is_the_sum_of_both_reservations() -> None:
    config = effective(systemReserved={"cpu": "500m"}, kubeReserved={"cpu": "1"})
    assert config.reserved_cpus is None
    assert config.cpu_reservation_milli == config.node_reserved["cpu"] == 1500


@pytest.mark.parametrize(
    ("threshold", "reserved"),
    [
        ("100Mi", 100 * MIB),
        ("0%", 0),
        ("100%", 0),
        # int64(capacity * float64(float32(value) / 100)) in the kubelet
        ("5%", int(67432316928 * 0.05000000074505806)),
        ("12.5%", 67432316928 // 8),
    ],
)
def test_the_eviction_threshold_is_a_quantity_or_a_share_in_float32(
    threshold: str, reserved: int
) -> None:
    config = effective(67432316928, evictionHard={"memory.available": threshold})
    assert config.node_reserved.get("memory", 0) == reserved


def test_configz_is_already_effective() -> None:
    answer = {"kubeletconfig": {"cpuManagerPolicy": "static", "evictionHard": {}}}
    config = kubelet_config.from_configz(answer, memory_bytes=GIB)
    assert config.cpu_policy == "static"
    assert config.node_reserved == {}


@pytest.mark.parametrize("answer", [{}, {"kubeletconfig": []}, {"kubeletConfig": {}}])
def test_another_answer_is_no_configz(answer: dict[str, Any]) -> None:
    with pytest.raises(errors.KubeletError, match="configz"):
        kubelet_config.from_configz(answer, memory_bytes=GIB)


def test_a_file_without_thresholds_gets_the_default_one(tmp_path: Path) -> None:
    assert from_text("", tmp_path).node_reserved == {"memory": 100 * MIB}


def test_a_file_with_thresholds_keeps_only_its_own(tmp_path: Path) -> None:
    text = 'evictionHard: {nodefs.available: "0%"}\n'
    assert from_text(text, tmp_path).node_reserved == {}


def test_default_thresholds_can_be_merged_in(tmp_path: Path) -> None:
    text = 'evictionHard: {nodefs.available: "0%"}\nmergeDefaultEvictionSettings: true\n'
    assert from_text(text, tmp_path).node_reserved == {"memory": 100 * MIB}


def test_drop_ins_are_merged_in_lexical_order(tmp_path: Path) -> None:
    config = from_text(
        "systemReserved: {cpu: 500m, memory: 1Gi}\nmaxPods: 10\n"
        "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n",
        tmp_path,
        **{
            "20-b_conf": "systemReserved: {cpu: 2}\nmaxPods: 30\n",
            "10-a_conf": "systemReserved: {cpu: '1'}\nmaxPods: 20\ncpuManagerPolicy: static\n",
            "30-c_conf": "cpuManagerPolicyOptions: null\nevictionHard: {memory.available: 1Gi}\n",
            "40-d_yaml": "maxPods: 99\n",
        },
    )
    assert config.cpu_policy == "static"
    assert config.max_pods == 30
    assert config.node_reserved == {"cpu": 2000, "memory": 2 * GIB}
    assert config.cpu_options == {}


def test_drop_ins_of_directories_come_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "d" / "15").mkdir(parents=True)
    for name, count in (("20.conf", 20), ("15/99.conf", 15), ("10.conf", 10)):
        (tmp_path / "d" / name).write_text(f"{HEAD}maxPods: {count}\ncpuManagerPolicy: none\n")
    config = kubelet_config.from_files(None, tmp_path / "d", memory_bytes=GIB)
    assert config.max_pods == 20
    (tmp_path / "d" / "20.conf").unlink()
    config = kubelet_config.from_files(None, tmp_path / "d", memory_bytes=GIB)
    assert config.max_pods == 15


def test_flags_win_over_files(tmp_path: Path) -> None:
    config = from_text(
        "topologyManagerPolicy: restricted\nsystemReserved: {cpu: 500m, memory: 1Gi}\n"
        "featureGates: {A: true, B: true}\n",
        tmp_path,
        "--topology_manager_policy=best-effort",
        "--topology-manager-scope",
        "pod",
        "--topology-manager-policy-options=prefer-closest-numa-nodes=true,"
        "max-allowable-numa-nodes=16",
        "--cpu-manager-policy-options=full-pcpus-only=true",
        "--cpu-manager-policy-options=align-by-socket=false",
        "--system-reserved=cpu=1",
        "--feature-gates=B=false,C=true",
        "--eviction-hard=memory.available<2Gi,nodefs.available<10%",
        "--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=2Gi",
        "--reserved-memory=2:memory=3Gi",
        "--max-pods=17",
        "--unrelated",
        "--cpu-manager-policy=static",
        "--reserved-cpus=0,1",
    )
    assert config == KubeletConfig(
        topology_policy="best-effort",
        topology_scope="pod",
        topology_options={"max-allowable-numa-nodes": "16", "prefer-closest-numa-nodes": "true"},
        cpu_policy="static",
        cpu_options={"align-by-socket": "false", "full-pcpus-only": "true"},
        reserved_cpus=0b11,
        cpu_reservation_milli=2000,
        reserved_memory={
            0: {"hugepages-2Mi": 2 * MIB, "memory": GIB},
            1: {"memory": 2 * GIB},
            2: {"memory": 3 * GIB},
        },
        node_reserved={"cpu": 2000, "memory": 2 * GIB},
        feature_gates={"A": True, "B": False, "C": True},
        max_pods=17,
    )


def test_a_kubelet_without_any_file_has_no_thresholds() -> None:
    config = kubelet_config.from_flags(["--cpu-manager-policy=static"], memory_bytes=GIB)
    assert config == KubeletConfig(cpu_policy="static")


def test_a_command_line_leads_to_its_files(tmp_path: Path) -> None:
    (tmp_path / "etc" / "d").mkdir(parents=True)
    (tmp_path / "etc" / "kubelet.yaml").write_text(f"{HEAD}maxPods: 1\ncpuManagerPolicy: static\n")
    (tmp_path / "etc" / "d" / "x.conf").write_text(f"{HEAD}maxPods: 2\n")
    flags = ["--config=/etc/kubelet.yaml", "--config-dir", "/etc/d", "--v=2"]
    config = kubelet_config.from_flags(flags, memory_bytes=GIB, root=tmp_path)
    assert (config.max_pods, config.cpu_policy) == (2, "static")


def test_the_kubelets_command_line_is_found_in_procfs(tmp_path: Path) -> None:
    for pid, name, words in (
        (1, "systemd", ["/sbin/init"]),
        (77, "kubelet", ["/usr/bin/kubelet", "--max-pods=5", "--v=2"]),
        (78, "bash", ["bash", "kubelet"]),
        (79, "kubelet", ["kubelet", "--root_dir", "/data/kubelet", "--max-pods=7"]),
    ):
        add_process(tmp_path, pid, name, words)
    (tmp_path / "80").mkdir()  # it has just ended
    usual = Path("/var/lib/kubelet")
    assert config_flags.find_command_line(tmp_path, usual) == ("--max-pods=5", "--v=2")
    other = config_flags.find_command_line(tmp_path, Path("/data/kubelet"))
    assert other is not None
    assert other[-1] == "--max-pods=7"
    # Another process of that name is not the kubelet of a directory that was named.
    assert config_flags.find_command_line(tmp_path, Path("/srv/kubelet")) is None
    assert config_flags.find_command_line(tmp_path / "77", usual) is None


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"topologyManagerPolicy": "strict"}, "topologyManagerPolicy: 'strict' is none of none,"),
        ({"topologyManagerScope": "node"}, "topologyManagerScope"),
        ({"cpuManagerPolicy": "Static"}, "cpuManagerPolicy"),
        ({"memoryManagerPolicy": "static"}, "memoryManagerPolicy"),
        ({"cpuManagerPolicyOptions": ["x"]}, "cpuManagerPolicyOptions: expected a mapping"),
        (
            {"cpuManagerPolicyOptions": {"a": "b", "x": [1]}},
            "cpuManagerPolicyOptions.x: expected text, not [1]",
        ),
        ({"systemReserved": {1: "1Gi"}}, "systemReserved: expected names that are text, not {1:"),
        ({"reservedSystemCPUs": "0-"}, "reservedSystemCPUs"),
        ({"reservedSystemCPUs": [0]}, "reservedSystemCPUs: expected text"),
        ({"systemReserved": {"cpu": "1 core"}}, "systemReserved.cpu"),
        ({"systemReserved": {"cpu": "-1"}}, "systemReserved.cpu: negative"),
        ({"kubeReserved": {"memory": 1.5}}, "kubeReserved.memory"),
        ({"evictionHard": {"memory.available": "x%"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "101%"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "nan%"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "1e99%"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "many"}}, "evictionHard.memory.available"),
        ({"reservedMemory": {}}, "reservedMemory: expected a list"),
        ({"reservedMemory": [1]}, "reservedMemory[0]: expected a mapping, not 1"),
        ({"reservedMemory": [{"numaNode": -1}]}, "reservedMemory[0].numaNode: expected a zone"),
        ({"reservedMemory": [{}, {"limits": [1]}]}, "reservedMemory[1].limits: expected a mapping"),
        ({"reservedMemory": [{"limits": {"memory": "x"}}]}, "reservedMemory[0].limits.memory: bad"),
        (
            {"reservedMemory": [{"limits": {"memory": 1.5}}]},
            "reservedMemory[0].limits.memory: expected text, not 1.5",
        ),
        ({"maxPods": 1 << 64}, "maxPods: expected text"),
        ({"maxPods": 16**5000}, "maxPods: expected text, not a very large number"),
        ({"featureGates": {"A": "maybe"}}, "featureGates.A: expected true or false"),
        ({"maxPods": "many"}, "maxPods"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_key(config: dict[str, Any], key: str) -> None:
    with pytest.raises(errors.KubeletError) as caught:
        effective(**config)
    assert str(caught.value).startswith(f"test: {key}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "flag",
    [
        "--system-reserved=cpu",
        "--eviction-hard=memory.available=1Gi",
        "--reserved-memory=memory=1Gi",
        "--reserved-memory=0:memory",
        "--feature-gates=X",
    ],
)
def test_a_bad_flag_is_named(flag: str) -> None:
    with pytest.raises(errors.KubeletError, match=flag.split("=", maxsplit=1)[0]):
        kubelet_config.from_flags([flag], memory_bytes=GIB)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a KubeletConfiguration"),
        ("kind: Config\napiVersion: v1\n", "kind: expected KubeletConfiguration"),
        ("kind: KubeletConfiguration\napiVersion: v2\n", "apiVersion"),
        ("a: [\n", "not YAML"),
        ("a: 2001-99-99\n", "not YAML"),
        ("- 1\n", "not a KubeletConfiguration"),
    ],
)
def test_another_file_is_refused_by_name(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(errors.KubeletError) as caught:
        kubelet_config.from_files(tmp_path / "c.yaml", memory_bytes=GIB)
    assert why in str(caught.value)
    assert str(tmp_path / "c.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fault_of_a_drop_in_is_told_of_that_file(tmp_path: Path) -> None:
    """Also where a later one would hide it: the kubelet reads each on its own."""
    with pytest.raises(errors.KubeletError) as caught:
        from_text(
            "maxPods: 10\n",
            tmp_path,
            **{"10-a_conf": "systemReserved: [cpu]\n", "20-b_conf": "systemReserved: {cpu: 1}\n"},
        )
    at = tmp_path / "config.d" / "10-a.conf"
    assert str(caught.value) == (
        f"kubelet configuration {at}: systemReserved: expected a mapping, not ['cpu']"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.KubeletError, match="No such file"):
        kubelet_config.from_files(tmp_path / "none", memory_bytes=GIB)
    with pytest.raises(errors.KubeletError, match="drop-in directory"):
        kubelet_config.from_files(None, tmp_path / "none", memory_bytes=GIB)
    with pytest.raises(errors.KubeletError, match="Is a directory"):
        kubelet_config.from_files(tmp_path, memory_bytes=GIB)


def test_an_alias_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text(f"{HEAD}a: &a {{b: *a}}\n")
    with pytest.raises(errors.KubeletError, match="alias"):
        kubelet_config.from_files(None, tmp_path, memory_bytes=GIB)


KEYS = [
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "reservedSystemCPUs",
    "memoryManagerPolicy",
    "reservedMemory",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "featureGates",
    "maxPods",
    "mergeDefaultEvictionSettings",
]


@settings(max_examples=scaled(1000), deadline=None)
@given(config=st.dictionaries(st.sampled_from(KEYS), json_values, max_size=3))
def test_garbage_values_are_read_or_one_clear_line(config: dict[str, Any]) -> None:
    try:
        result = kubelet_config.from_configz({"kubeletconfig": config}, memory_bytes=GIB)
    except errors.KubeletError as error:
        assert "\n" not in str(error)
        assert any(f"configz: {key}" in str(error) for key in config)
    else:
        assert result.topology_policy in kubelet_config.TOPOLOGY_POLICIES
        assert result.cpu_reservation_milli >= 0
        assert all(amount >= 0 for amount in result.node_reserved.values())


@settings(max_examples=scaled(1000), deadline=None)
@given(
    text=st.binary(max_size=80)
    | st.text(alphabet="ab: -[]{}&*!|>?%@'\"#,\n\t0.9eE", max_size=60).map(str.encode)
    | json_values.map(lambda value: json.dumps(value).encode())
)
def test_garbage_text_is_one_clear_line(text: bytes) -> None:
    for head in (b"", HEAD.encode()):
        try:
            document = config_document.parse(head + text, "test")
            kubelet_config.effective(document, memory_bytes=GIB, where="test")
        except errors.KubeletError as error:
            assert str(error).startswith("test: ")
            assert "\n" not in str(error)


@settings(max_examples=scaled(1000), deadline=None)
@given(
    flags=st.lists(
        st.builds(
            "--{}{}".format,
            st.sampled_from(sorted(config_flags._FLAGS - {"config", "config-dir"})),
            st.text(alphabet="=,:;<>0189-cpumemory.Gi% ", max_size=20),
        )
        | st.text(max_size=10),
        max_size=4,
    )
)
def test_garbage_flags_are_read_or_one_clear_line(flags: list[str]) -> None:
    flags = [flag for flag in flags if not flag.startswith("--config")]
    try:
        kubelet_config.from_flags(flags, memory_bytes=GIB)
    except errors.KubeletError as error:
        assert "\n" not in str(error)
