"""Acts of a story: what happens, when, and with what; drawn by seed, or read from a file."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    Draw = Callable[[random.Random], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One sort of act. ``weight``: how often, among those of its sort; 0: only when asked for."""

    name: str
    do: Callable[..., Any]
    draw: Draw
    weight: float
    is_fault: bool


KINDS: dict[str, Kind] = {}


def act(
    name: str, *, draw: Draw, weight: float = 1.0, fault: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an act under its name."""

    def register(do: Callable[..., Any]) -> Callable[..., Any]:
        KINDS[name] = Kind(name, do, draw, weight, fault)
        return do

    return register


@dataclass(frozen=True)
class Act:
    """``at``: seconds after the world is up; ``number`` tells it from its likes."""

    at: float
    what: str
    number: int
    given: Mapping[str, Any]

    def line(self) -> str:
        """As a file has it."""
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in self.given.items())
        return f"{self.at:.3f} {self.what} #{self.number} {given}".rstrip()


def read_act(line: str) -> Act:
    """The other way."""
    at, what, number, *given = line.split()
    pairs = (one.partition("=") for one in given)
    return Act(
        float(at), what, int(number.removeprefix("#")),
        {key: json.loads(text) for key, _, text in pairs},
    )  # fmt: skip


@dataclass(frozen=True)
class Story:
    """What is played.

    Attributes:
        seed: of all chance that the acts leave open.
        acts: in their order.
        episodes: moments after which nothing happens for a while, and all must be well.
        nodes: how many the cluster has.
        planted: name of the planted fault; empty: none.
    """

    seed: int
    acts: tuple[Act, ...]
    episodes: tuple[float, ...]
    nodes: int = 8
    planted: str = ""

    def write(self, path: Path, found: Iterable[str] = ()) -> None:
        """As a file that ``python -m tests.world FILE`` plays."""
        lines = [f"# {line}" for line in found]
        lines += [f"seed {self.seed}", f"nodes {self.nodes}"]
        lines += [f"planted {self.planted}"] if self.planted else []
        lines += [f"quiet {moment:g}" for moment in self.episodes]
        path.write_text("\n".join([*lines, *(one.line() for one in self.acts)]) + "\n")

    @classmethod
    def read(cls, path: Path) -> Story:
        """The other way."""
        seed, nodes, name, acts, episodes = 1, 8, "", [], []
        for line in path.read_text().splitlines():
            word, _, rest = line.partition(" ")
            match word:
                case "" | "#":
                    pass
                case "seed":
                    seed = int(rest)
                case "nodes":
                    nodes = int(rest)
                case "planted":
                    name = rest
                case "quiet":
                    episodes.append(float(rest))
                case _:
                    acts.append(read_act(line))
        return cls(seed, tuple(acts), tuple(episodes), nodes, name)


#: Seconds of an episode in which things happen, and after it, in which nothing does.
EPISODE_S, QUIET_S = 600.0, 300.0


def draw_story(
    seed: int,
    hours: float,
    *,
    nodes: int = 8,
    only: Iterable[str] = (),
    every_s: float = 4.0,
    episode_s: float = EPISODE_S,
) -> Story:
    """A story by chance: users do something every ``every_s``, each fault comes once an hour.

    ``only``: faults that may come; none named: all. ``episode_s``: for so long things happen before
    a time of quiet; shorter ones have more faults.
    """
    chance = random.Random(f"{seed} story")
    users = [kind for kind in KINDS.values() if not kind.is_fault and kind.weight]
    wanted = set(only)
    faults = [
        kind for kind in KINDS.values()
        if kind.is_fault and kind.weight and (not wanted or kind.name in wanted)
    ]  # fmt: skip
    moments: list[tuple[float, Kind]] = []
    episodes: list[float] = []
    begin = 5.0
    while begin < hours * 3600.0:
        end = begin + episode_s
        at = begin
        while (at := at + chance.expovariate(1 / every_s)) < end:
            moments.append((at, chance.choices(users, [one.weight for one in users])[0]))
        episodes.append(end)
        begin = end + QUIET_S
    hour = round(3600.0 / (EPISODE_S + QUIET_S))
    for first in range(0, len(episodes), hour):
        for kind in faults:
            for _ in range(max(1, round(kind.weight))):
                # Once an hour at least; of an hour that is played in part, its part.
                place = first + chance.randrange(hour)
                if place < len(episodes):
                    moments.append((episodes[place] - chance.uniform(0.0, episode_s), kind))
    moments.sort(key=lambda one: one[0])
    acts = [
        Act(round(at, 3), kind.name, number, kind.draw(chance))
        for number, (at, kind) in enumerate(moments)
    ]
    return Story(seed, tuple(acts), tuple(episodes), nodes)
