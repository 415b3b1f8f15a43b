"""Small clusters for the joint solver, and an oracle that tries everything."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from rte import placement
from rte.model.totals import totals_of
from rte.placement.joint.node import JointNode, Member

ROOM = {"cpu": 10**6, "memory": 1 << 50, "hugepages-2Mi": 1 << 40, "pods": 20}


def node(name, state, room=None, used=None, **more):
    devices = dict.fromkeys(state.devices, 1000)
    return JointNode(
        name=name,
        state=state,
        allocatable={**ROOM, **devices, **(room or {})},
        used=used or {},
        **more,
    )


def members(*pods):
    return [Member(pod=replace(pod, uid=f"{pod.uid}-{n}")) for n, pod in enumerate(pods)]


def takes(each, pods):
    """Whether the node admits the pods in every order, whether or not one starts in between."""
    totals = Counter(each.used)
    for pod in pods:
        totals.update(totals_of(pod))
    if any(amount > each.allocatable.get(name, 0) for name, amount in totals.items()):
        return False
    for order in itertools.permutations(pods):
        states = [each.state]
        for pod in order:
            after = []
            for state in states:
                possible = placement.possible_states(state, pod)
                if possible is None:
                    return False
                after += [*possible, *(placement.start(one, pod) for one in possible)]
            states = after
    return True


def most(nodes, pods, key=""):
    """The size of the largest placement."""
    best = 0
    homes = [None, *nodes]
    for choice in itertools.product(homes, repeat=len(pods)):
        used = [home for home in choice if home is not None]
        if len(used) <= best:
            continue
        if key and len({home.labels.get(key) for home in used} | {None}) > 2:
            continue
        if key and any(key not in home.labels for home in used):
            continue
        if all(
            takes(home, [pod for pod, there in zip(pods, choice, strict=True) if there is home])
            for home in {id(home): home for home in used}.values()
        ):
            best = len(used)
    return best
