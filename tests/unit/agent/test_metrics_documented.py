"""docs/metrics.md and the registry say the same."""

from __future__ import annotations

import re
from pathlib import Path

from rte.telemetry.metrics import AgentMetrics

DOCUMENT = Path(__file__).parents[3] / "docs/metrics.md"
ROW = re.compile(r"\| `(rte_\w+)` \| (\w+) \|\s*([^|]*?)\s*\|")


def test_every_metric_is_documented_with_kind_and_labels_and_nothing_else_is():
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(DOCUMENT.read_text())
    }
    metrics = AgentMetrics()
    existing = {
        metric._name: (metric._type, tuple(metric._labelnames))
        for metric in vars(metrics).values()
        if hasattr(metric, "_labelnames")
    } | {"rte_build_info": ("gauge", ("version",))}
    assert documented == existing


def test_the_exposition_holds_them_and_the_process():
    text = AgentMetrics().exposition().decode()
    assert "process_resident_memory_bytes" in text
    assert "rte_kubelet_synced" in text
