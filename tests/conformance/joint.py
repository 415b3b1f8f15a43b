"""Several pods at once: recorded answers of an exhaustive search, every plan of ours played out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

from msgspec import structs

from rte import placement
from rte.model import bits
from rte.model.totals import totals_of
from rte.placement.joint import defrag, fit, gang
from rte.placement.joint.node import JointNode, Member
from tests.conformance.kubelet import (
    VERSION,
    Differences,
    config_of,
    pod_of,
    pool_of,
    topology_of,
)

if TYPE_CHECKING:
    from rte.model.node import NodeState
    from rte.model.pod import Pod

DEFRAG_FIELDS = {
    "id", "nodes", "target", "movable", "possible", "evictions", "priority", "example",
    "target_to", "tags",
}  # fmt: skip
FIT_FIELDS = {"id", "nodes", "pod", "n", "per_node", "totals"}
GANG_FIELDS = {
    "id", "nodes", "pods", "min_count", "topology_key", "feasible", "most", "example",
    "greedy_fails", "tags",
}  # fmt: skip
NODE_FIELDS = {
    "name", "labels", "machine", "config", "devices", "mem_types", "max_pods", "allocatable",
    "steps", "effective_reserved_cpus", "shared", "mem", "pods", "priority",
}  # fmt: skip


@dataclass
class World:
    """The nodes of a case, as they can be played with."""

    states: dict[str, NodeState]
    pods: dict[str, dict[str, Pod]]
    records: dict[str, dict]

    @classmethod
    def of(cls, case: dict, found: Differences) -> World:
        world = cls({}, {}, {})
        for record in case["nodes"]:
            found.known("node", record, NODE_FIELDS)
            name = record["name"]
            world.records[name] = record
            world.states[name], world.pods[name] = replayed(record, found)
        return world

    def copy(self) -> World:
        pods = {name: dict(there) for name, there in self.pods.items()}
        return World(dict(self.states), pods, self.records)

    def nodes(self) -> list[JointNode]:
        return [
            JointNode(
                name=name,
                state=state,
                allocatable=self.allocatable(name),
                used=self.used(name),
                labels=self.records[name]["labels"],
            )
            for name, state in self.states.items()
        ]

    def allocatable(self, name: str) -> dict[str, int]:
        record = self.records[name]
        return {**record["allocatable"], "pods": record["max_pods"]}

    def used(self, name: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for pod in self.pods[name].values():
            used.update(totals_of(pod))
        return used

    def admit(self, name: str, pod: Pod) -> str:
        """Let a pod come; why it is not admitted, empty when it is."""
        used, room = self.used(name), self.allocatable(name)
        for resource, amount in totals_of(pod).items():
            if used[resource] + amount > room.get(resource, 0):
                return f"too little {resource}"
        if not placement.admit(self.states[name], pod).admitted:
            return "not certain to be admitted"
        answer = placement.execute(self.states[name], pod)
        if answer.admitted:
            self.states[name] = answer.state
            self.pods[name][pod.uid] = pod
        return answer.reason


def replayed(record: dict, found: Differences) -> tuple[NodeState, dict[str, Pod]]:
    """The state of a node after its steps, and the pods that are there."""
    where = record["name"]
    state = placement.initial_state(
        topology_of(record["machine"]),
        config_of(record["config"]),
        {name: pool_of(rows) for name, rows in record["devices"].items()},
        VERSION,
    )
    static = record["config"]["cpu_policy"] == "static"
    found.compare(
        f"{where} reserved",
        bits.format_list(state.reserved) if static else "",
        record["effective_reserved_cpus"],
    )
    active: dict[str, Pod] = {}
    for step in record["steps"]:
        if step["op"] == "admit":
            pod = pod_of(step)
            answer = placement.execute(state, pod)
            found.compare(f"{where} {pod.uid} ok", answer.admitted, step["ok"])
            state = answer.state
            if answer.admitted:
                active[pod.uid] = pod
                state = with_devices(state, pod, step["alloc"])
            state = placement.settle(state, frozenset(active))
        elif step["op"] == "start":
            state = placement.start(state, active[step["pod"]])
        else:
            state = placement.remove(state, step["pod"])
            del active[step["pod"]]
    found.compare(
        f"{where} shared", bits.format_list(state.shared) if static else "", record["shared"]
    )
    rows = [
        [zone, row.assignments, list(bits.members(row.group))]
        + [row.amounts[name].free if name in row.amounts else 0 for name in record["mem_types"]]
        for zone, row in sorted(state.memory.items())
    ]
    # The kubelet's numbers are unsigned, the recorded ones signed.
    recorded = [[*row[:3], *(free % (1 << 64) for free in row[3:])] for row in record["mem"]]
    found.compare(f"{where} mem", rows, recorded)
    found.compare(f"{where} pods", sorted(active), sorted(record["pods"]))
    return state, active


def with_devices(state: NodeState, pod: Pod, rows: list) -> NodeState:
    """The state with the devices that the kubelet happened to choose for the pod."""
    held = dict(state.holdings.get(pod.uid, {}))
    for container, row in zip(pod.containers, rows, strict=True):
        if "dev" in row:
            masks = {
                name: bits.of(state.devices[name].ids.index(each) for each in ids)
                for name, ids in row["dev"].items()
            }
            held[container.name] = structs.replace(held[container.name], devices=masks)
    return replace(state, holdings={**state.holdings, pod.uid: held}) if held else state


# Gangs


def check_joint_gang(case: dict) -> list[str]:
    found = Differences()
    found.known("case", case, GANG_FIELDS)
    world = World.of(case, found)
    pods = {each.uid: each for each in map(pod_of, case["pods"])}
    key = case.get("topology_key") or ""
    answers = [
        gang.place_together(
            world.nodes(),
            [Member(pod=pod) for pod in pods.values()],
            min_count=case["min_count"],
            topology_key=key,
            maximize=maximize,
        )
        for maximize in (False, True)
    ]
    verdict = gang.GangVerdict.FITS if case["feasible"] else gang.GangVerdict.DOES_NOT_FIT
    for answer in answers:
        found.compare("verdict", answer.verdict, verdict)
        if answer.most is not None:
            found.compare("most", answer.most, case["most"])
        if case["feasible"] and len(answer.places) < case["min_count"]:
            found.append(f"only {len(answer.places)} places")
    found += placement_faults(world, pods, answers[0].places, key)
    if answers[0].places != answers[1].places:
        found += placement_faults(world, pods, answers[1].places, key)
    found.compare("most", len(answers[1].places), case["most"])
    found.compare("blame", answers[0].blame, blame_of(case))
    return found


def placement_faults(world: World, pods: dict, places: dict, key: str) -> list[str]:
    """What is wrong with a placement: every order of arrival is played on every node."""
    faults = []
    values = {world.records[name]["labels"].get(key) for name in places.values()}
    if key and places and (len(values) > 1 or None in values):
        faults.append(f"places have the values {values} of {key}")
    for name in set(places.values()):
        sent = [pods[uid] for uid, node in places.items() if node == name]
        for order in permutations(sent):
            trial = world.copy()
            for pod in order:
                why = trial.admit(name, pod)
                if why:
                    uids = [each.uid for each in order]
                    faults.append(f"{name} refuses {pod.uid} in the order {uids}: {why}")
                    return faults
    return faults


def blame_of(case: dict) -> gang.Blame | None:
    if case["feasible"]:
        return None
    if "key" in case["tags"]:
        return gang.Blame.TOPOLOGY_KEY
    return gang.Blame.ZONES if "totals-fit" in case["tags"] else gang.Blame.TOTALS


# Counts


def check_joint_fit(case: dict) -> list[str]:
    found = Differences()
    found.known("case", case, FIT_FIELDS)
    world = World.of(case, found)
    pod = pod_of(case["pod"])
    answer = fit.FitTable(world.nodes()).count(Member(pod=pod))
    found.compare("n", answer.total, case["n"])
    found.compare("per_node", dict(answer.copies), case["per_node"])
    found.compare("totals", dict(answer.totals), case["totals"])
    for name, count in answer.copies.items():
        for number in range(count):
            why = world.admit(name, replace(pod, uid=f"copy-{number}"))
            if why:
                found.append(f"{name} refuses copy {number}: {why}")
    return found


# Moves


def check_joint_defrag(case: dict) -> list[str]:
    found = Differences()
    found.known("case", case, DEFRAG_FIELDS)
    world = World.of(case, found)
    target = pod_of(case["target"])
    movable = [
        defrag.Movable(pod=pod, node=name, priority=world.records[name]["priority"][uid])
        for name, there in world.pods.items()
        for uid, pod in there.items()
        if uid in case["movable"]
    ]
    found.compare("movable", {each.pod.uid for each in movable}, set(case["movable"]))
    plan = defrag.plan_moves(world.nodes(), [Member(pod=target)], movable)
    verdict = defrag.GangVerdict.FITS if case["possible"] else defrag.GangVerdict.DOES_NOT_FIT
    found.compare("verdict", plan.verdict, verdict)
    if not case["possible"] or plan.verdict is not verdict:
        return found
    found.compare("evictions", len(plan.moves), case["evictions"])
    found.compare("priority", plan.priority, case["priority"])
    found.compare("minimal", plan.minimal, True)
    pods = {each.pod.uid: each for each in movable}
    found.compare("moved once", len({move.pod for move in plan.moves}), len(plan.moves))
    for move in plan.moves:
        found.compare("source", move.source, pods[move.pod].node)
        world.states[move.source] = placement.remove(world.states[move.source], move.pod)
        del world.pods[move.source][move.pod]
        pod = pods[move.pod].pod
        why = world.admit(move.target, pod)
        if why:
            found.append(f"{move.target} refuses {move.pod}: {why}")
        world.states[move.target] = placement.start(world.states[move.target], pod)
    why = world.admit(plan.places[target.uid], target)
    if why:
        found.append(f"{plan.places[target.uid]} refuses the target: {why}")
    return found
