"""``python -m tests.fuzz --cases 100000 --seed N``: objects that nobody expects, against scheduler and agent."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import argparse
import sys

from tests.fuzz import agent, doors, kueue, scheduler


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=1, help="stop after so many findings")
    options = parser.parse_args()
    found = scheduler.run(options.cases, options.seed, options.most)
    for part in (agent, doors, kueue):
        found += part.run(options.cases // 4, options.seed, options.most)
    for each in found:
        print(each)
    print(
        f"{options.cases} cases of the scheduler, {options.cases // 4} each of the agent, the doors "
        f"and Kueue's objects, seed {options.seed}: {len(found)} findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
