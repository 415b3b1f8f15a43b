"""Processes of a test bed: started tied to us, found again by a mark in their environment.

Every process (and whatever it starts) carries ``RTE_TESTBED_RUN=<run folder>``, so nothing has to
be remembered to find all of them again, not even after a crash.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

RUN = "RTE_TESTBED_RUN"
ROLE = "RTE_TESTBED_ROLE"

# The kernel sends the parent-death signal when the *thread* that forked ends: one thread that lives
# as long as this process starts everything.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="testbed-spawn")
_children: dict[int, subprocess.Popen[bytes]] = {}


class ClusterError(Exception):
    """The test bed cannot do what was asked; the message says why."""


#: The root of a container: an overlay whose upper layer lies in the folder of its node.
_LAYER = re.compile(r" / / .*upperdir=(?P<run>[^,]+)/n/(?P<node>[^/,]+)/containerd/")


def spawn(
    argv: Sequence[str | Path],
    *,
    run_dir: Path,
    role: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    tied: bool = True,
) -> int:
    """Start a process of the test bed and return its pid; its output is appended to ``log``.

    Args:
        tied: it dies with this process (however that ends).
    """
    command = [str(word) for word in argv]
    if tied:
        command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    environment = {**os.environ, **(env or {}), RUN: str(run_dir), ROLE: role}

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    process = _spawner.submit(start).result() if tied else start()
    _children[process.pid] = process
    return process.pid


def find(run_dir: Path, role: str | None = None) -> Iterator[psutil.Process]:
    """Living processes of a run (only those of one role and below, e.g. ``n0/``, if given)."""
    for process in psutil.process_iter():
        try:
            where, what = _belonging(process)
            if where != run_dir or process.pid == os.getpid():
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
        except psutil.Error:
            continue
        if role is None or what == role or what.startswith(f"{role}/"):
            yield process


def runs() -> Counter[Path]:
    """Run folders that processes of this machine belong to, and how many each has."""
    found: Counter[Path] = Counter()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            run_dir, _ = _belonging(process)
            if run_dir and process.pid != os.getpid():
                found[run_dir] += 1
    return found


def _belonging(process: psutil.Process) -> tuple[Path | None, str]:
    """Run folder and role of a process; None for one that is not ours.

    What runs in a container has an environment of its own; the layer that it writes to tells whose
    it is.
    """
    marks = process.environ()
    if RUN in marks:
        return Path(marks[RUN]), marks.get(ROLE, "")
    try:
        root = Path(f"/proc/{process.pid}/mountinfo").read_text().partition("\n")[0]
    except OSError:  # it has ended
        return None, ""
    found = _LAYER.search(root)
    return (Path(found["run"]), f"{found['node']}/container") if found else (None, "")


def stop(run_dir: Path, role: str | None = None, *, grace: float = 0.0) -> int:
    """End all processes of a run, or of one role; returns how many there were.

    Args:
        grace: seconds between the polite signal and the final one (0: only the final one).
    """
    victims = list(find(run_dir, role))
    ours = [_children[process.pid] for process in victims if process.pid in _children]
    count = len(victims)
    if grace:
        for process in victims:
            _signal(process.terminate)
        _wait(lambda: not any(find(run_dir, role)), grace)
    deadline = time.monotonic() + 10
    while victims := list(find(run_dir, role)):
        for process in victims:
            _signal(process.kill)
        reap()
        if time.monotonic() > deadline:
            names = ", ".join(f"{process.pid}" for process in victims)
            raise ClusterError(f"processes {names} of {run_dir} do not end")
        time.sleep(0.01)
    for child in ours:
        # A dying process shows no environment any more, and cannot be collected yet.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
    reap()
    return count


def reap() -> None:
    """Collect children that have ended."""
    for pid, process in list(_children.items()):
        if process.poll() is not None:
            del _children[pid]


def alive(pid: int) -> bool:
    """Whether a process that we started still runs."""
    child = _children.get(pid)
    return child.poll() is None if child else psutil.pid_exists(pid)


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_until(
    done: Callable[[], bool],
    seconds: float,
    what: str,
    *,
    pid: int = 0,
    log: Path | None = None,
    every: float = 0.02,
) -> None:
    """Wait for a condition that has no event.

    Raises:
        ClusterError: time is up, or process ``pid`` ended; with the last lines of its log.
    """
    deadline = time.monotonic() + seconds
    while not done():
        over = pid and not alive(pid)
        if over or time.monotonic() > deadline:
            why = "its process ended" if over else f"not within {seconds:g} s"
            raise ClusterError(f"{what}: {why}\n{tail(log)}" if log else f"{what}: {why}")
        time.sleep(every)


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, errors preferred (klog's E and F lines)."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace").splitlines()
    errors = [
        line for line in text if line[:1] in "EF" or "command failed" in line or "run.go" in line
    ]
    return "\n".join((errors or text)[-lines:])


_given: set[int] = set()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, outside the kernel's ephemeral range."""
    for _ in range(200):
        port = random.randint(15000, 30000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise ClusterError("no free TCP port between 15000 and 30000")


def is_free(port: int) -> bool:
    """Whether nobody has the TCP port on any address."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def note(text: str) -> None:
    """A line of progress for the person at the terminal."""
    print(text, file=sys.stderr, flush=True)
