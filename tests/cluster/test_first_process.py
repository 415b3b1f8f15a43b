"""The agent as the first process of a container, whose unhandled signals the kernel drops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import processes

pytestmark = pytest.mark.cluster

FIRST = ["unshare", "--pid", "--fork", "--kill-child", "--", sys.executable, "-m", "rte", "run"]


def caught(pid: int) -> int:
    """The signals that a process has handlers for, as the kernel writes them."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(line.split()[1], 16)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text() or 0)


@pytest.mark.parametrize("begun", [False, True], ids=["as it starts", "at work"])
def test_the_first_process_of_a_container_ends_when_asked(tmp_path: Path, begun: bool) -> None:
    out = tmp_path / "nrt.json"
    none = tmp_path / "none"
    where = [f"--kubelet-state-dir={none}", f"--podresources-socket={none}/kubelet.sock"]
    command = [*FIRST, "--node-name=n", f"--sink=file:{out}", "--metrics-listen=", *where]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stderr=log) as outer:
        processes.wait_until(lambda: child_of(outer.pid), 10, "the child", every=0.001)
        agent, handled = child_of(outer.pid), 1 << (signal.SIGTERM - 1)
        processes.wait_until(lambda: caught(agent) & handled, 30, "the handler", every=0.001)
        if begun:
            said = "the kubelet cannot be read"
            processes.wait_until(lambda: said in Path(log.name).read_text(), 60, said)
        os.kill(agent, signal.SIGTERM)
        try:
            # unshare ends as its child does.
            assert outer.wait(20) == (0 if begun else 128 + signal.SIGTERM)
        finally:
            outer.kill()
