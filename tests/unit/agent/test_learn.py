"""What is learnt of the Node and of the kubelet's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte import errors
from rte.agent import learn
from rte.agent.settings import AgentSettings
from rte.model.node import ConfigSource
from tests.processes import add_process

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def node(**status: object) -> dict[str, object]:
    return {"metadata": {"uid": "u"}, "status": status}


def test_when_the_kubelet_last_reported_is_its_ready_conditions_heartbeat() -> None:
    conditions = [
        {"type": "MemoryPressure", "lastHeartbeatTime": "2026-01-01T00:01:00Z"},
        {"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
    ]
    assert learn.node_facts(node(conditions=conditions)).heard == 1767225600
    assert learn.node_facts(node()).heard is None
    assert learn.node_facts(node(conditions=[{"type": "Ready"}])).heard is None


def test_a_time_that_is_none_is_one_clear_line() -> None:
    conditions = [{"type": "Ready", "lastHeartbeatTime": "yesterday"}]
    with pytest.raises(errors.ParseError, match="yesterday"):
        learn.node_facts(node(conditions=conditions))


async def test_the_source_of_a_configuration_is_told(tmp_path: Path) -> None:
    state, proc = tmp_path / "kubelet", tmp_path / "proc"
    state.mkdir()
    (state / "config.yaml").write_text(f"{HEAD}topologyManagerPolicy: none\n")
    flags = [f"--root-dir={state}", "--topology-manager-policy=single-numa-node"]
    for pid, words in ((7, ["--topology-manager-policy=restricted"]), (8, flags)):
        add_process(proc, pid, "kubelet", ["kubelet", *words])
    settings = AgentSettings(procfs_root=proc, kubelet_state_dir=state)
    config = await learn.read_kubelet_config(settings, 1 << 30)
    assert config is not None
    assert (config.source, config.topology_policy) == (
        ConfigSource.COMMAND_LINE, "single-numa-node",
    )  # fmt: skip
    # Without it there is another process called kubelet, which is not that of the directory.
    add_process(proc, 8, "gone", ["gone", *flags])
    config = await learn.read_kubelet_config(settings, 1 << 30)
    assert config is not None
    assert (config.source, config.topology_policy) == (ConfigSource.USUAL_FILE, "none")
    assert config.is_assumed
