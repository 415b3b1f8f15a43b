"""A failing story becomes a short one: whatever can be left out is left out (delta debugging)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.world.play import play

if TYPE_CHECKING:
    from tests.world.acts import Act, Story
    from tests.world.judge import Violation


def shrink(story: Story, violation: Violation, *, most_s: float = 300.0) -> Story:
    """The shortest story found that breaks the same rule, within so many seconds of a processor."""
    ends = time.process_time() + most_s
    rule = violation.rule

    def fails(acts: list[Act], episodes: tuple[float, ...], nodes: int) -> bool:
        tried = replace(story, acts=tuple(acts), episodes=episodes, nodes=nodes)
        return rule in play(tried).rules

    acts = [one for one in story.acts if one.at <= violation.when]
    episodes = tuple(moment for moment in story.episodes if moment <= violation.when)
    if not episodes or not fails(acts, episodes, story.nodes):
        episodes = story.episodes
    nodes = story.nodes
    parts = 2
    while len(acts) > 1 and time.process_time() < ends:
        size = max(1, len(acts) // parts)
        for begin in range(0, len(acts), size):
            rest = [*acts[:begin], *acts[begin + size :]]
            if time.process_time() > ends:
                break
            if fails(rest, episodes, nodes):
                acts, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(acts), 2 * parts)
    if len(episodes) > 1:
        for moment in episodes:
            if fails(acts, (moment,), nodes):
                episodes = (moment,)
                break
    return replace(story, acts=tuple(acts), episodes=episodes, nodes=nodes)
