"""Recorded worlds of kube-scheduler: feasibility, the decision, whom it evicts, the order of nodes.

Nodes of these worlds have no report, so the rules of zones say nothing.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from rte.k8s import selectors
from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.room import plans
from rte.scheduler.plugins.default_preemption import EvictionPlan

#: Key of a world -> collection of the scheduler, in the order in which they are told.
COLLECTIONS = {
    "namespaces": "namespaces",
    "classes": "classes",
    "csidrivers": "drivers",
    "csinodes": "limits",
    "capacities": "capacities",
    "pvs": "volumes",
    "pvcs": "claims",
    "pdbs": "budgets",
    "deviceclasses": "device-classes",
    "slices": "slices",
    "claims": "device-claims",
    "nodes": "nodes",
    "pods": "pods",
}
#: Rules of kube-scheduler's name that prefer nodes, and the weights in their recorded scores.
ORDERING = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
}
NOW = 1000.0
#: A decision is made within so many turns.
TURNS = 4000
TERMINAL = ("Succeeded", "Failed")


class World:
    """A machine that has seen a recorded world."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.machine = SchedulerMachine("default-scheduler")
        self.machine.handle(messages.Tick(), NOW)
        for key, collection in COLLECTIONS.items():
            for obj in case.get(key) or ():
                self._tell(collection, obj)
        self._tell("pods", case["pod"])
        self.pod = self.machine.cluster.pods[case["pod"]["metadata"]["uid"]]

    def _tell(self, collection: str, obj: dict[str, Any]) -> None:
        for effect in self.machine.handle(messages.Seen(collection, obj), NOW):
            assert getattr(effect, "metric", "") != "malformed", obj["metadata"]

    def answers(self) -> dict[str, dict[str, Any]]:
        """Of each node whether it takes the pod, who refuses it and why, or each rule's score."""
        cycle, cluster = self.machine.cycle, self.machine.cluster
        problem = cycle.problem(self.pod)
        around = () if problem.reason else cycle.around(self.pod)
        names = [node["metadata"]["name"] for node in self.case["nodes"]]
        checks = {
            name: problem if problem.reason else cycle.check(cluster.nodes[name], self.pod, around)
            for name in names
        }
        found = [Candidate(cluster.nodes[n], s) for n, s in checks.items() if not s.reason]
        scores = cycle.scores(self.pod, found)
        rows = {candidate.node.name: index for index, candidate in enumerate(found)}
        return {
            name: {
                "fits": not status.reason,
                "plugin": status.plugin,
                "reason": status.reason,
                "scores": {k: v[rows[name]] for k, v in scores.items()} if name in rows else {},
            }
            for name, status in checks.items()
        }

    def screened(self) -> set[str]:
        """Nodes that the screen, which stands before the exact check, lets through."""
        cycle = self.machine.cycle
        entries, *_ = cycle.candidates.ordered(self.pod, cycle.around(self.pod), None, set())
        return {entry.name for entry in entries}

    def decision(self) -> dict[str, Any] | None:
        """What the machine does: of the pod alone where others wait as well."""
        machine, pod = self.machine, self.pod
        if self.pod.gated:
            return None
        if not any(other.uid != pod.uid for other in machine.cluster.pending(pod.scheduler)):
            return self._of_machine()
        decision = machine.cycle.decide(pod)
        if decision.node is not None:
            return {"bind": decision.node}
        if not pod.preempts or not machine.cluster.has_lower(pod.priority):
            return None
        found = plans.plans(machine.cycle, machine.cluster, pod)
        best = min(
            (p for p in found if isinstance(p, EvictionPlan)), key=lambda p: p.cost, default=None
        )
        if best is None:
            return None
        return _evicts(best.node, best.victims) if best.victims else {"wait": best.node}

    def _of_machine(self) -> dict[str, Any] | None:
        effects = self.machine.handle(messages.Leading(active=True), NOW)
        for _ in range(TURNS):
            for effect in effects:
                match effect:
                    case messages.Bind(node=node):
                        return {"bind": node}
                    case messages.Evict(node=node, victims=victims):
                        return _evicts(node, victims)
                    case messages.Nominate(node=node) if node:
                        return {"wait": node}
            if not self.machine.has_work():
                return None
            effects = self.machine.handle(messages.Turn(), NOW)
        raise AssertionError("no end of turns")


def _evicts(node: str, victims: Any) -> dict[str, Any]:
    return {"evict": node, "victims": [victim.uid for victim in victims]}


def answer_scheduler_verdicts(case: dict[str, Any]) -> dict[str, Any]:
    """All that is said about a world, for anybody to judge."""
    world = World(case)
    return {"id": case["id"], "nodes": world.answers(), "decision": world.decision()}


def check_scheduler_verdicts(case: dict[str, Any]) -> list[str]:
    world, truth = World(case), case["result"]
    if world.pod.gated != bool(truth.get("gated")):
        return [f"gated: {world.pod.gated}, truth {truth.get('gated')!r}"]
    if world.pod.gated:
        return []
    nodes = world.answers()
    found = [
        f"{name}: {answer['plugin']} {answer['reason'] or 'fits'}, truth {_said(truth, name)}"
        for name, answer in nodes.items()
        if answer["fits"] != _fits(truth, name)
    ]
    if found:
        return found
    fitting = [name for name, answer in nodes.items() if answer["fits"]]
    if fitting:
        hidden = set(fitting) - world.screened()
        found += [f"{name}: dropped by the screen" for name in sorted(hidden)]
        found += misordered(truth, {name: nodes[name]["scores"] for name in fitting})
    decision = world.decision()
    if fitting:
        bound = (decision or {}).get("bind")
        return found if bound in fitting else [*found, f"decision {decision}, {fitting} fit"]
    if not truth["nodes"]:
        return found
    why = preemption_fault(case, decision)
    return [*found, f"{decision}: {why}"] if why else found


def _fits(truth: dict[str, Any], name: str) -> bool:
    return bool(truth["nodes"][name]["code"] == "Success")


def _said(truth: dict[str, Any], name: str) -> str:
    answer = truth["nodes"][name]
    return f"{answer['code']} {answer.get('plugin', '')}: {'; '.join(answer.get('reasons') or ())}"


def misordered(truth: dict[str, Any], ours: dict[str, dict[str, float]]) -> list[str]:
    """Pairs of nodes that a rule of kube-scheduler's name orders otherwise than recorded."""
    if any("scores" not in truth["nodes"][name] for name in ours):
        return []
    found = []
    for plugin, weight in ORDERING.items():
        wanted = {name: truth["nodes"][name]["scores"].get(plugin, 0) / weight for name in ours}
        got = {name: scores.get(plugin, 0.0) / weight for name, scores in ours.items()}
        for a, b in combinations(ours, 2):
            # kube-scheduler's scores are whole numbers: ours may tell equal ones apart a little.
            if abs((wanted[a] - wanted[b]) - (got[a] - got[b])) > 1.001:
                found.append(f"{plugin}: {got[a]:.1f}, {got[b]:.1f} for {a}, {b}, truth "
                             f"{wanted[a]:.1f}, {wanted[b]:.1f}")  # fmt: skip
                break
    return found


# Preemption


def preemption_fault(case: dict[str, Any], decision: dict[str, Any] | None) -> str:
    """What is wrong with a plan for a pod that fits nowhere, empty when nothing is.

    The truth are the sets of victims with which the real filters let the pod in, once pods being
    deleted have left, where they were tried: kube-scheduler itself is at times too hopeful (pods
    being deleted and topology spread) or too strict (it removes whom the pod must join).
    """
    truth = case["result"].get("preempt") or {}
    pods = {pod["metadata"]["uid"]: pod for pod in case.get("pods") or ()}
    leaving = {uid for uid, pod in pods.items() if pod["metadata"].get("deletionTimestamp")}
    theirs = {c["node"]: set(c["victims"]) - leaving for c in truth.get("candidates") or ()}
    exact = {one["node"]: one for one in truth.get("exact") or ()} if truth.get("tried") else None

    def suffices(node: str, uids: set[str]) -> bool | None:
        """None: nobody has tried."""
        if exact is None or exact.get(node, {}).get("large"):
            return None
        return node in exact and any(set(one) <= uids for one in exact[node]["sets"])

    decision = decision or {}
    if "bind" in decision:
        return "no node takes the pod"
    if not decision:
        proven = [suffices(node, uids) for node, uids in theirs.items()]
        missed = any(proven) or (exact is None and bool(proven))
        return f"kube-scheduler evicts {theirs}" if truth.get("node") and missed else ""
    if "wait" in decision:
        return "waits in vain" if suffices(decision["wait"], set()) is False else ""
    node, uids = decision["evict"], set(decision["victims"])
    enough = suffices(node, uids)
    if enough is False:
        return "evicted in vain"
    known = [(name, uids) for name, uids in theirs.items() if suffices(name, uids) is None]
    for name, one in (exact or {}).items():
        known += [(name, set(uids)) for uids in one.get("sets") or ()]
    faults = []
    for empty in (False, True):
        # A budget with an empty selector covers all pods to the API, none to kube-scheduler.
        ours = quality(case, node, uids, empty=empty)
        best = min((quality(case, name, other, empty=empty) for name, other in known), default=ours)
        if ours <= best:
            return ""
        faults.append(f"{ours} where {best} would do (violations, highest, number, sum)")
    return faults[0]


def quality(
    case: dict[str, Any], node: str, uids: set[str], *, empty: bool
) -> tuple[int, int, int, int]:
    """Violated budgets, highest priority, number and sum of priorities of victims."""
    pods = [p for p in case.get("pods") or () if p["spec"].get("nodeName") == node]
    running = [p for p in pods if (p.get("status") or {}).get("phase") not in TERMINAL]
    lower = sorted((p for p in running if _priority(p) < _priority(case["pod"])), key=_importance)
    victims = [p for p in case.get("pods") or () if p["metadata"]["uid"] in uids]
    victims.sort(key=_importance)
    if not victims:
        return (0, -(1 << 40), 0, 0)
    # kube-scheduler counts over all pods that might go, whether or not they do.
    violations = min(
        len(violating(case, lower, empty=empty) & uids),
        len(violating(case, victims, empty=empty)),
    )
    priorities = [_priority(pod) for pod in victims]
    return (violations, max(priorities), len(victims), sum(priorities))


def violating(case: dict[str, Any], pods: list[dict[str, Any]], *, empty: bool) -> set[str]:
    """UIDs of those of these pods whose eviction, in this order, violates a budget."""
    budgets = [
        [item, (item.get("status") or {}).get("disruptionsAllowed") or 0]
        for item in case.get("pdbs") or ()
    ]
    found = set()
    for pod in pods:
        for budget in budgets:
            if _covers(budget[0], pod, empty=empty):
                budget[1] -= 1
                if budget[1] < 0:
                    found.add(pod["metadata"]["uid"])
    return found


def _covers(budget: dict[str, Any], pod: dict[str, Any], *, empty: bool) -> bool:
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    if metadata["namespace"] != budget["metadata"]["namespace"] or not (labels or empty):
        return False
    if metadata["name"] in ((budget.get("status") or {}).get("disruptedPods") or {}):
        return False
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or not (
        empty or selector.get("matchLabels") or selector.get("matchExpressions")
    ):
        return False
    return selectors.parse_selector(selector, "selector").matches(labels)


def _priority(pod: dict[str, Any]) -> int:
    return int(pod["spec"].get("priority") or 0)


def _importance(pod: dict[str, Any]) -> tuple[int, str]:
    return -_priority(pod), (pod.get("status") or {}).get("startTime") or "~"
