"""What the documentation names is there; tests/cluster/test_documents.py types the commands."""

from __future__ import annotations

import pytest

from rte.cli import main
from tests.documents import EVERY_PAGE, PAGES, commands

NAMED = sorted({c.text for page in EVERY_PAGE for c in commands(page) if c.named})


def test_commands_are_found_wherever_they_stand() -> None:
    found = {command.text for page in PAGES for command in commands(page)}
    for text in (
        "kubectl create -k manifests/crd",  # an indented block, with a comment
        "rte fit -f gang.yaml --topology-key topology.kubernetes.io/rack",  # after a prompt
        "helm uninstall rte -n rte-system",  # in the prose
        "rte import nhd triad radio.cfg",  # a fenced block
        "rte snapshot --redact node.tar.gz",  # a table
    ):
        assert text in found
    assert len(found) > 80


@pytest.mark.parametrize("text", [text for text in NAMED if text.startswith("rte ")])
def test_what_the_prose_names_is_a_command_with_these_flags(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, command, *flags = text.split()
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    known = capsys.readouterr().out
    assert all(flag in known for flag in flags)
