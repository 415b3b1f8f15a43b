"""Plays a story."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.world import faults, users  # noqa: F401 - what can happen
from tests.world.acts import KINDS, QUIET_S
from tests.world.clock import PROCESS, Clock, NeverEndsError
from tests.world.cluster import Make, World
from tests.world.judge import Judge
from tests.world.plant import planted
from tests.world.planted import by_name

if TYPE_CHECKING:
    from tests.world.acts import Story
    from tests.world.judge import Violation

_BACKUP_S = 120.0
#: Ended pods are remembered for 300 s, in case that a late report names them.
_FORGETS_S = 400.0


@dataclass
class Played:
    """What came of it. ``hours`` of cluster time in ``cpu_s`` seconds of a processor."""

    found: list[Violation] = field(default_factory=list)
    hours: float = 0.0
    cpu_s: float = 0.0
    binds: int = 0
    refusals: int = 0
    excused: int = 0
    kept: int = 0

    @property
    def rules(self) -> set[str]:
        """Which rules were broken."""
        return {one.rule for one in self.found}


def play(story: Story, *, tells: bool = False, goes_on: bool = False) -> Played:
    """Play a story to its end, or until a rule is broken (unless it ``goes_on``)."""
    began = time.process_time()
    judge = Judge()
    played = Played()
    with Clock(story.seed) as clock, planted(by_name(story.planted)):
        make = Make(seed=story.seed, nodes=story.nodes)
        world = World(make, clock, judge, tells=tells)
        judge.watch_logs(on=True)
        PROCESS.set(world.user)
        # What a world that was broken off leaves behind ends when nobody is there any more.
        sys.unraisablehook = lambda _: None
        try:
            clock.loop.run_until_complete(_play(world, story, goes_on=goes_on))
        except NeverEndsError as error:
            judge.breaks("a bounded number of steps", str(error))
        finally:
            judge.watch_logs(on=False)
        played.hours = (clock.now() - 1000.0) / 3600.0
    played.found = judge.found
    played.binds, played.refusals, played.excused = judge.binds, judge.refusals, judge.excused
    played.kept = judge.kept
    played.cpu_s = time.process_time() - began
    return played


async def _play(world: World, story: Story, *, goes_on: bool) -> None:
    judge = world.judge

    def is_over() -> bool:
        return bool(judge.found) and not goes_on

    await world.up()
    world.back_up()
    ticking = asyncio.create_task(_tick(world))
    begin = world.now()
    acts = list(story.acts)
    try:
        for episode in story.episodes or (acts[-1].at + 1.0 if acts else 60.0,):
            while acts and acts[0].at <= episode and not is_over():
                one = acts.pop(0)
                await _until(world, begin + one.at, is_over)
                if is_over():
                    return
                world.say(f"> {one.what} {dict(one.given)}")
                if KINDS[one.what].is_fault:
                    until = world.now() + float(one.given.get("seconds", 0.0))
                    world.unrest = max(world.unrest, until)
                done = KINDS[one.what].do(world, number=one.number, **one.given)
                if asyncio.iscoroutine(done):
                    await done
            await _until(world, begin + episode, is_over)
            if is_over():
                return
            world.say("(all faults are over)")
            world.unrest = world.now()
            world.heal()
            await _until(world, begin + episode + QUIET_S * 0.8, is_over)
            if not is_over():
                world.say("(it is quiet: judged)")
                judge.quiet()
            since = world.now()
            await _until(world, begin + episode + QUIET_S - 1.0, is_over)
            if is_over():
                return
            judge.silent(since)
        for wait in (20.0, _FORGETS_S):  # what a Job has made meanwhile goes with the second
            world.sweep_all()
            await _until(world, world.now() + wait, is_over)
        if not is_over():
            judge.empty()
    finally:
        ticking.cancel()
        await world.down()


async def _until(world: World, moment: float, is_over: object) -> None:
    while world.now() < moment and not is_over():  # type: ignore[operator]
        await asyncio.sleep(min(1.0, moment - world.now()))


async def _tick(world: World) -> None:
    last = world.now()
    while True:
        await asyncio.sleep(1.0)
        world.judge.tick()
        if world.now() - last > _BACKUP_S:
            last = world.now()
            world.back_up()
