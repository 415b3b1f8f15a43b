"""``python -m tests.world``: plays a cluster with faults, replays a story, plants faults."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.world.judge import Violation


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="a story: replay and narrate it")
    parser.add_argument("--seed", type=int, default=1, help="of the first story")
    parser.add_argument("--hours", type=float, default=1.0, help="of cluster time, in all")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--faults", default="", help="only these, by comma; default: all")
    parser.add_argument(
        "--planted", nargs="*", metavar="NAME", help="plant faults; none named: all"
    )
    parser.add_argument("--systematic", action="store_true", help="faults in turn, not by chance")
    parser.add_argument("--list", action="store_true", help="name faults and what is planted")
    parser.add_argument("--minutes", type=float, default=10.0, help="of a processor for a plant")
    parser.add_argument("--keep", type=Path, default=Path("story.txt"), help="where a story goes")
    parser.add_argument("--shrink", type=float, default=300.0, help="seconds for shrinking")
    return parser.parse_args()


def main() -> int:
    """0: nothing was found (or all that was planted)."""
    args = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a story
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], environ)
    if args.list:
        return _list()
    if args.planted is not None:
        return _plant(args)
    if args.systematic:
        return _go_through(args)
    if args.file is not None:
        return _replay(args.file)
    return _search(args)


def _list() -> int:
    from tests.world.acts import KINDS
    from tests.world.planted import PLANTS
    from tests.world.play import play  # noqa: F401 - registers what can happen

    for kind in KINDS.values():
        text = " ".join((kind.do.__doc__ or "").split())
        print(f"{'fault' if kind.is_fault else 'act':6}{kind.name:18}{text}")
    for plant in PLANTS:
        print(f"plant {plant.kind:18}{plant.name}")
    return 0


def _replay(path: Path) -> int:
    from tests.world.acts import Story
    from tests.world.play import play

    played = play(Story.read(path), tells=True)
    for violation in played.found:
        print(violation)
    return 1 if played.found else 0


def _search(args: argparse.Namespace) -> int:
    from tests.world.acts import draw_story
    from tests.world.play import play
    from tests.world.shrink import shrink

    hours, cpu, seed = 0.0, 0.0, args.seed
    while hours < args.hours:
        wanted = [name for name in args.faults.split(",") if name]
        story = draw_story(seed, min(1.0, args.hours - hours), nodes=args.nodes, only=wanted)
        played = play(story)
        hours, cpu = hours + played.hours, cpu + played.cpu_s
        if played.found:
            print(f"seed {seed}: {played.found[0]}", flush=True)
            short = shrink(story, played.found[0], most_s=args.shrink)
            short.write(args.keep, [str(one) for one in played.found])
            print(f"{len(short.acts)} acts are in {args.keep}: python -m tests.world {args.keep}")
            return 1
        print(
            f"seed {seed}: {played.hours:.2f} h in {played.cpu_s:.1f} s, {played.binds} binds, "
            f"{played.refusals} refusals, {played.excused} of them excused",
            flush=True,
        )
        seed += 1
    print(f"{hours:.1f} hours, {60 * hours / cpu:.1f} per minute of a processor: nothing found")
    return 0


def _find(name: str, ends: float, args: argparse.Namespace) -> Violation | None:
    """What is found of a planted fault: where one event is alone first, then by chance."""
    from tests.world.acts import Story, draw_story
    from tests.world.play import play
    from tests.world.systematic import of_the_server, wake_ups

    by_chance = (
        draw_story(seed, 0.05, nodes=args.nodes, every_s=2.0, episode_s=150.0)
        for seed in count(args.seed)
    )
    in_turn = [*wake_ups(), *of_the_server()]
    kept = map(Story.read, sorted((Path(__file__).parent / "stories").glob("*.txt")))
    for story in chain((one for _, one in in_turn), kept, by_chance):
        if time.process_time() > ends:
            break
        played = play(replace(story, planted=name))
        if played.found:
            return played.found[0]
    return None


def _go_through(args: argparse.Namespace) -> int:
    from tests.world.play import play
    from tests.world.systematic import stories

    failed = tried = 0
    for name, story in stories():
        played, tried = play(story), tried + 1
        if played.found:
            failed += 1
            print(f"{name}: {played.found[0]}", flush=True)
            story.write(args.keep, [name])
    print(f"{tried} faults in turn, {failed} of them break a rule")
    return 1 if failed else 0


def _plant(args: argparse.Namespace) -> int:
    from tests.world.planted import PLANTS

    chosen = [one for one in PLANTS if not args.planted or one.name in args.planted]
    missed = 0
    for plant in chosen:
        began = time.process_time()
        found = _find(plant.name, began + 60 * args.minutes, args)
        took = time.process_time() - began
        if found is None and not plant.unseen:
            missed += 1
        says = found.rule if found else plant.unseen or "NOT FOUND"
        print(f"{took:6.1f} s  {plant.kind:16} {plant.name}: {says}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


sys.exit(main())
