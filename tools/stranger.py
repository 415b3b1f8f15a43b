"""A stranger's path, timed: ``python -m tools.stranger [--of REPOSITORY] [--tests]``.

Clones the repository and types what README.md says, block by block, as somebody who has nothing of
it yet: until the first picture of a cluster, with ``--tests`` until the tests have passed. The exit
code is 1 when a step fails or takes longer than it may.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Seconds from nothing to the first picture, and for the tests, on two processors that do nothing
#: else.
PICTURE_S, TESTS_S = 60.0, 120.0
#: Of what the first block prints last: objects that the demo's agents have published.
PICTURE = "NodeResourceTopology"


def blocks(readme: str) -> list[str]:
    """The commands that README.md tells a user to type, block by block."""
    return re.findall(r"(?ms)^```sh\n(.*?)^```", readme)


def step(command: str, folder: Path) -> tuple[float, str]:
    """Seconds that a command takes there, and what it prints.

    Raises:
        SystemExit: it fails.
    """
    # Of the caller's own environment nothing is in a stranger's.
    known = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    known |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", command],
        cwd=folder, env=known, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    print(f"{seconds:7.1f} s  {' '.join(command.split())}", flush=True)
    if done.returncode:
        raise SystemExit(
            f"exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return seconds, done.stdout


def main() -> int:
    """Type it all; 0 when each part was as quick as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--of", default=str(ROOT), metavar="REPOSITORY", help="what is cloned")
    parser.add_argument("--tests", action="store_true", help="type the tests' command as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rte-stranger-") as made:
        cloned, _ = step(f"git clone --quiet {args.of} clone", Path(made))
        folder = Path(made) / "clone"
        first, second, *_ = blocks((folder / "README.md").read_text())
        shown, printed = step(first, folder)
        if PICTURE not in printed:
            raise SystemExit(f"no picture of a cluster:\n{printed[-2000:]}")
        parts = [("to the first picture", cloned + shown, PICTURE_S)]
        if args.tests:
            parts.append(("for the tests", step(second, folder)[0], TESTS_S))
    for what, seconds, limit in parts:
        print(f"{seconds:7.1f} s  {what} (of {limit:g} s)")
    return 0 if all(seconds <= limit for _, seconds, limit in parts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
