"""Every figure that the documentation quotes, measured anew: ``python -m tools.figures OUT.md``.

Runs the benchmarks one after the other and writes what each printed as a table, with the machine,
its load while that one ran, and the pages that quote it. A benchmark measures its baseline in its
own run. Those on real clusters take minutes to hours: ``--only`` picks by name.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Figure:
    """One run of one benchmark."""

    bench: str
    flags: str = ""

    @property
    def command(self) -> list[str]:
        """What is run."""
        return [sys.executable, "-m", self.bench, *shlex.split(self.flags)]

    @property
    def pages(self) -> list[str]:
        """The pages that name the benchmark."""
        paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        return [str(path.relative_to(ROOT)) for path in paths if self.bench in path.read_text()]


#: In the order of what they cost.
FIGURES = (
    Figure("bench.placement_lib"),
    Figure("bench.reading"),
    Figure("bench.joint"),
    Figure("bench.groups"),
    Figure("bench.footprint"),
    Figure("bench.drift"),
    Figure("bench.dra_lib"),
    Figure("bench.scores"),
    Figure("bench.sim_scale"),
    Figure("bench.scheduler_scale", "--stored"),
    Figure("bench.scheduler_load"),
    Figure("bench.scheduler_events"),
    Figure("bench.scheduler_week"),
    Figure("bench.reaction"),
    Figure("bench.flood"),
    Figure("bench.placement", "--scheduler rte --seeds 1,2,3,4,5"),
    Figure("bench.placement", "--extender rte --seeds 1,2,3"),
    Figure("bench.dra"),
    Figure("bench.gangs"),
    Figure("bench.scheduler_pace"),
    Figure("bench.scheduler_perf"),
    Figure("bench.scheduler_takeover"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """0 = all were measured, 1 = one failed: its place in the file says how."""
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.md")
    names = sorted({figure.bench for figure in FIGURES})
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    args = parser.parse_args(argv)
    chosen = [figure for figure in FIGURES if not args.only or figure.bench in args.only]
    parts = [f"# Figures\n\n{machine()}\n"]
    failed = False
    for figure in chosen:
        print(shlex.join(figure.command[1:]), file=sys.stderr)
        text, good = measured(figure)
        parts.append(text)
        failed |= not good
        args.out.write_text("\n".join(parts))  # what is there by now, if it is ended
    return int(failed)


def machine() -> str:
    """What it all is measured on, and of."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    ).stdout.strip()  # fmt: skip
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    cores = os.cpu_count()
    return (
        f"Commit {commit or 'unknown'}; Python {platform.python_version()}; {cores} processors "
        f"({', '.join(sorted(models)) or platform.machine()}); Linux {platform.release()}."
    )


def measured(figure: Figure) -> tuple[str, bool]:
    """Its part of the file, and whether it ended well."""
    before, begin = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(figure.command, cwd=ROOT, capture_output=True, text=True, check=False)
    after, seconds = os.getloadavg()[0], time.monotonic() - begin
    told = f"`{figure.bench} {figure.flags}`".replace(" `", "`")
    quoted = ", ".join(figure.pages) or "bench/README.md alone"
    head = (
        f"## {told}\n\nQuoted by {quoted}. Took {seconds:.0f} s; load {before:.1f} before, "
        f"{after:.1f} after.\n"
    )
    rows = list(lines_of(done.stdout))
    if done.returncode or not rows:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        return f"{head}\nIt failed ({done.returncode}):\n\n```text\n{said}\n```\n", False
    return f"{head}\n{table(rows)}", True


def lines_of(text: str) -> Iterable[dict[str, Any]]:
    """The JSON objects among the lines that a benchmark prints."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """One row for each line, a column for each key in the order in which they first come."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(row.get(key, "")) for key in columns] for row in rows]
    return "".join(f"| {' | '.join(each)} |\n" for each in lines)


def cell(value: object) -> str:
    """A value in a table of Markdown."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
