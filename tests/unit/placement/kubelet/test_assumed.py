"""A configuration that is only assumed makes no certain prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rte import placement
from rte.model.node import ConfigSource, KubeletConfig
from rte.placement.kubelet import outcome
from tests.unit.accounting.nodes import Kubelet, container, guaranteed


@pytest.mark.parametrize("source", ConfigSource)
def test_only_what_the_usual_file_says_is_assumed(source: ConfigSource) -> None:
    state = Kubelet().state
    state = replace(state, config=replace(state.config, source=source))
    admission = placement.admit(state, guaranteed("a", container("c", 2)))
    if source is ConfigSource.USUAL_FILE:
        assert admission.verdict is placement.Verdict.UNCERTAIN
        assert admission.reason == outcome.UNKNOWN_CONFIGURATION
        assert "nodes/configz" in admission.message
    else:
        assert admission.admitted


def test_the_ranks_are_those_of_trust() -> None:
    assert sorted(ConfigSource, key=lambda source: source.rank) == [
        "", "config.yaml", "command-line", "configz", "named-file",
    ]  # fmt: skip
    assert not KubeletConfig().is_assumed
