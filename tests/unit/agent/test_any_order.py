"""Whatever happens: no report that is synced and wrong, no Lease renewed without a living source.

Observer and publisher are played against a made-up node (:mod:`tests.unit.agent.world`): restarts,
silence, half an answer, torn files, endings, second writers, outages of the API, late answers. Then
everything heals, and what is published has to be exact.
"""

from __future__ import annotations

import random

import pytest

from rte.agent.observer import messages as seen
from rte.agent.observer.messages import KubeletChange
from rte.model.node import ConfigSource
from tests.depth import scaled
from tests.unit.agent.world import World

#: Of one life; 30 with the API and 30 without make 60,000.
STEPS = 1000
LIVES = scaled(30)


def step(world: World) -> None:
    """One thing happens."""
    rng = world.rng
    chance = rng.random()
    if chance < 0.45:
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            respond(world)
    elif chance < 0.6:
        world.notice()
        if world.api and rng.random() < 0.8:
            world.tell_of_pods(rng.randint(1, 3))
    elif chance < 0.75:
        world.advance(rng.choice((0.001, 0.01, 0.1, 0.1, 1.0, 10.0)))
    elif chance < 0.86:
        world.admit()
    elif chance < 0.93:
        world.end()
    elif chance < 1 - 0.04 * world.unrest:
        recover(world)
    else:
        disturb(world)
    if world.has_told_of_itself and rng.random() < 0.05 * world.unrest:
        world.report()
        world.restart()
    world.take_up()
    world.tick()


def respond(world: World) -> None:
    """Somebody answers the agent, in any order."""
    rng = world.rng
    open_reads = [pending for pending in world.reads if pending.answer is None]
    done = [pending for pending in world.reads if pending.answer is not None]
    if open_reads and rng.random() < 0.6:
        world.serve(rng.choice(open_reads))
    elif done and rng.random() < 0.8:
        # Who was asked last often answers first.
        world.deliver(done[-1] if rng.random() < 0.5 else rng.choice(done))
    elif world.requests:
        world.answer_request(rng.choice(world.requests))


def disturb(world: World) -> None:
    """Something that does not happen every day."""
    rng = world.rng
    match rng.randrange(15):
        case 0 | 9 | 10 | 11:
            if rng.random() < 0.4:  # nobody can tell by the Node which of the two has reported
                world.report()
            world.serve_some()
            world.restart()
            if rng.random() < 0.3:  # it fails at once, and is started again
                world.notice()
                for _ in range(rng.randint(2, 8)):
                    respond(world)
                    world.tick()
                world.serve_some()
                world.restart()
        case 1:
            world.kubelet.up, world.kubelet.hangs = False, rng.random() < 0.5
        case 2:
            world.damaged = True
            world.change_files()
        case 3:
            world.api_is_up = False
        case 4:
            world.write_over()
        case 5 if world.watched:
            world.tell_publisher(world.watched.pop(0))
        case 6 if world.api:
            world.tell(seen.PodsUnknown())
        case 7 if world.api:
            world.relist()
        case 12 | 13 | 14 if world.api:
            world.lose_a_mirror()
        case 8:
            if world.stored is not None and rng.random() < 0.5:
                world.restore()
            else:
                world.backup = world.version, world.stored
        case _:
            world.tell(seen.Noticed(KubeletChange.POLL | KubeletChange.MACHINE, world.now))


def recover(world: World) -> None:
    """One of the troubles is over."""
    match world.rng.randrange(4):
        case 0:
            world.kubelet.up = True
        case 1:
            world.damaged = False
            world.change_files()
        case 2:
            world.api_is_up = True
        case _ if world.api and not world.observer.pods.listed:
            world.relist()


def heal(world: World) -> None:
    """Everybody answers at once, and nothing more happens."""
    world.kubelet.up = world.api_is_up = world.is_friendly = True
    world.damaged = False
    world.change_files()
    while world.half is not None:
        world.admit()
    world.take_up(everybody=True)
    if world.api:
        world.relist()
    for event in world.watched:
        world.tell_publisher(event)
    world.watched.clear()
    settle(world, 80)


def others_write_and_pods_come_and_go(world: World) -> None:
    """Once more, when all is well."""
    world.write_over()
    for event in world.watched:
        world.tell_publisher(event)
    world.watched.clear()
    settle(world, 10)
    assert world.stored is not None, "deleted, and not made again"
    world.end()
    for _ in range(3):
        world.admit()
    world.tell_of_pods(len(world.untold))
    settle(world, 20)


def a_kubelet_reports_late(world: World) -> None:
    """So soon after the former one's report that nobody can tell whose it is."""
    world.report()
    world.advance(1.0)
    world.restart()
    settle(world, 8)
    world.take_up(everybody=True)
    settle(world, 60)


def settle(world: World, rounds: int) -> None:
    """Five seconds a round, in which all is told and answered."""
    for _ in range(rounds):
        world.unnoticed |= KubeletChange.POLL
        world.notice()
        for _ in range(20):
            for pending in list(world.reads):
                if pending.answer is None:
                    world.serve(pending)
                world.deliver(pending)
            for pending in list(world.requests):
                world.answer_request(pending)
            world.tick()
        world.advance(5.0)


def assert_exact(world: World) -> None:
    """What is published is what the kubelet has."""
    state = world.truth()
    assert state is not None
    assert state.synced
    assert state.epoch == world.kubelet.epoch
    assert {uid: held["c"].cpus for uid, held in state.holdings.items()} == world.expected()
    unseen = world.alive - world.shown.keys() if world.api else set()
    if world.kubelet.left_over is None:
        unseen = set()  # else nobody tells of a static pod without a mirror
    assert state.admitted == (world.admitted & world.alive) - unseen
    assert state.config.topology_policy == world.kubelet.policy
    assert state.config.source is ConfigSource.CONFIGZ
    assert state.kubelet_version == world.kubelet.version
    assert world.stored is not None
    assert [owner["uid"] for owner in world.stored["metadata"]["ownerReferences"]] == [
        world.node_uid
    ]


def play(seed: int, *, api: bool, unrest: float = 1.0) -> None:
    """One life of an agent, and its end; the less ``unrest``, the longer all goes well."""
    world = World(random.Random(f"{seed}-{api}"), api=api, unrest=unrest)
    if api:
        world.relist()
    for _ in range(STEPS):
        step(world)
    heal(world)
    assert_exact(world)
    others_write_and_pods_come_and_go(world)
    assert_exact(world)
    a_kubelet_reports_late(world)
    assert_exact(world)
    assert world.renewals
    assert world.synced_reports


@pytest.mark.parametrize("api", [True, False], ids=["api", "no api"])
@pytest.mark.parametrize("seed", range(LIVES))
def test_what_is_synced_is_true_whatever_happens_and_is_exact_in_the_end(seed: int, api: bool):
    play(seed, api=api, unrest=(1.0, 0.3, 0.1)[seed % 3])
