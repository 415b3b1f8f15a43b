"""Processes in a ``/proc`` that is none: what psutil reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def add_process(procfs: Path, pid: int, name: str, words: list[str]) -> None:
    """A process of that name (proc(5): ``stat``, ``cmdline``)."""
    folder = procfs / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{pid} ({name}) S 1 " + "0 " * 48 + "\n")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
