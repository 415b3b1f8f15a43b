"""Why a pod goes where it goes, node by node: what ``rte explain`` and ``/explain`` answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from rte import errors
from rte.model import quantity, words
from rte.model.node import Holding
from rte.placement import explain
from rte.placement.advice import advise
from rte.placement.kubelet import releases
from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.framework.status import Status
from rte.scheduler.front.groups import GroupsAnswer, GroupsExplainer, books_of, parse_groups
from rte.scheduler.plugins.groups.given import with_groups

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rte.reader.json import Json, JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle


#: Nodes that are given scores: that takes some 40 ms.
_MOST_SCORED = 1000


@dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """One node's answer.

    Attributes:
        node: its name.
        fits: the pod may be bound there now.
        reason: why not, in kube-scheduler's or the kubelet's words.
        message: more of it.
        waits: only a pod in flight, or a reservation, stands in the way.
        report: how the node's zones are known: ``exact``, ``zones`` (another exporter's), ``none``,
            or why what is published is not trusted.
        rules: what is assumed of its kubelet's rules, empty when they are known.
        container: what the zones are measured against, ``*`` for the whole pod.
        zones: per zone what is wanted, free, and short.
        lands: container -> zones where the kubelet will put it.
        would_help: namespace/name of pods whose end would let it in.
        advice: what stands in its way, or would bring it into one place: requests, settings.
        totals: resource -> (wanted, free) of the node as a whole: milli-CPU, bytes, units. What
            plain Kubernetes looks at.
        groups: of a pod with processing groups, where they decide.
        scores: of a node that takes the pod, what each rule that prefers nodes gives it, weighted:
            the sums decide. Of very many nodes the first ones have them.
    """

    node: str
    fits: bool
    reason: str = ""
    message: str = ""
    waits: bool = False
    report: str = "none"
    rules: str = ""
    container: str = ""
    zones: tuple[explain.ZoneAnswer, ...] = ()
    lands: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    would_help: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    totals: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    groups: GroupsAnswer | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PodAnswer:
    """All nodes' answers: the best one first, then others that take the pod, then by name.

    Attributes:
        pod: namespace/name.
        bound: its node; ``confirmed`` tells whether the kubelet is known to have admitted it.
        chosen: the best node for a pod that is not bound.
        problem: why it can go nowhere, whatever the node.
        nominated: the node that makes room for it.
        scheduler: its ``spec.schedulerName``.
        held: container -> what its kubelet gave it, for a pod that runs; "" is the whole pod.
    """

    pod: str
    bound: str = ""
    confirmed: bool = False
    chosen: str | None = None
    problem: str = ""
    nominated: str = ""
    scheduler: str = ""
    held: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[NodeAnswer, ...] = ()

    def as_json(self) -> JsonObject:
        """Plain values for a JSON answer; each zone says what it is short of."""
        document = asdict(self)
        for node, answer in zip(document["nodes"], self.nodes, strict=True):
            for zone, value in zip(node["zones"], answer.zones, strict=True):
                zone["short"] = value.short
        return document


def parse_answer(document: Json) -> PodAnswer:
    """Read :meth:`PodAnswer.as_json` back, as a running scheduler sends it.

    Raises:
        errors.ParseError: the document is something else.
    """
    try:
        nodes = tuple(
            NodeAnswer(
                **{
                    **node,
                    "zones": tuple(
                        explain.ZoneAnswer(zone["zone"], zone["wanted"], zone["free"])
                        for zone in node["zones"]
                    ),
                    "lands": {name: tuple(zones) for name, zones in node["lands"].items()},
                    "would_help": tuple(node["would_help"]),
                    "advice": tuple(node.get("advice") or ()),
                    "totals": {
                        name: (pair[0], pair[1]) for name, pair in node.get("totals", {}).items()
                    },
                    "groups": parse_groups(node.get("groups")),
                }
            )
            for node in document["nodes"]
        )
        return PodAnswer(**{**document, "nodes": nodes})
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("answer of the scheduler", document, str(error)) from None


def explain_pod(cluster: Cluster, cycle: Cycle, pod: PodView) -> PodAnswer:
    """Explain a pod that waits, or one that exists nowhere yet, against the cluster as it is."""
    steps = explain_steps(cluster, cycle, pod)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: PodAnswer = done.value
            return answer


def explain_steps(cluster: Cluster, cycle: Cycle, pod: PodView) -> Generator[None, None, PodAnswer]:
    """The same, node by node: in between the cluster may change."""
    problem = cycle.problem(pod).reason
    sequence, around = cluster.sequence, cycle.around(pod)
    names = {each.kubelet_uid: each.key for each in cluster.pods.values()}
    groups = GroupsExplainer(cycle, pod)
    yield
    bound = cluster.assumed.get(pod.uid) or pod.node
    chosen = None if bound or problem else cycle.decide(pod).node
    answers: list[NodeAnswer] = []
    found: dict[str, Candidate] = {}
    for entry in tuple(cluster.nodes.values()):
        yield
        if entry.info is None:
            continue
        if sequence != cluster.sequence:
            sequence, around = cluster.sequence, cycle.around(pod)
        # What is malformed fits nowhere, and no rule can be asked about it.
        status = Status(reason=problem) if pod.shape.malformed else cycle.check(entry, pod, around)
        answers.append(_answer(entry, pod, status, names, groups))
        if not (status.reason or problem) and len(found) < _MOST_SCORED:
            found[entry.name] = Candidate(entry, status)
    rules = cycle.scores(pod, [*found.values()])
    places = {each.node: place for place, each in enumerate(answers)}
    for row, name in enumerate(found):
        scores = {rule: round(given[row], 3) for rule, given in rules.items()}
        at = places[name]
        answers[at] = replace(answers[at], scores=scores)
    if problem:
        # What holds everywhere holds here: no node says that a pod fits which goes nowhere.
        answers = [
            replace(each, fits=False, reason=problem, lands={}, groups=None) for each in answers
        ]
    return PodAnswer(
        pod=pod.key,
        bound=bound,
        confirmed=bound in cluster.nodes and cluster.nodes[bound].is_confirmed(pod),
        chosen=chosen,
        problem=problem,
        nominated=cluster.nominations.get(pod.uid, ""),
        scheduler=pod.scheduler,
        held=_held(cluster.nodes[bound], pod, cycle) if bound in cluster.nodes else {},
        nodes=tuple(
            sorted(answers, key=lambda each: (each.node != chosen, not each.fits, each.node))
        ),
    )


def report_of(entry: NodeEntry) -> str:
    """How the node's zones are known: ``exact``, ``zones``, ``none``, or why not."""
    if entry.report is None:
        return "none"
    return entry.distrust() or ("exact" if entry.report.state is not None else "zones")


def _held(entry: NodeEntry, pod: PodView, cycle: Cycle) -> dict[str, str]:
    """What the pod holds, container by container, or group by group."""
    reported = entry.report.state if entry.report else None
    if reported is None:
        return {}
    state = with_groups(entry, reported, books_of(cycle))
    given = dict(state.holdings.get(pod.kubelet_uid, {}))
    if pod.kubelet_uid in state.pod_holdings:  # what containers hold are parts of it
        given = {"": state.pod_holdings[pod.kubelet_uid], **given}
    return {
        name: f"{words.zones(state.zones_of(one))}: "
        f"{'CPUs ' if one.cpus else ''}{words.describe_holding(one)}"
        for name, one in given.items()
        if one != Holding()
    }


def _assumed(entry: NodeEntry) -> str:
    reported = entry.report.state if entry.report else None
    return releases.assumption(reported.kubelet_version) if reported else ""


def _totals(entry: NodeEntry, pod: PodView) -> dict[str, tuple[int, int]]:
    """What the pod asks of the whole node, and what is free there; a pod of it counts as used."""
    there = entry.info.allocatable if entry.info else {}
    return {
        name: (amount, quantity.capped(there.get(name, 0) - entry.used[name]))
        for name, amount in sorted(pod.shape.totals.items())
        if amount and name != "pods"
    }


def _answer(
    entry: NodeEntry,
    pod: PodView,
    check: Status,
    names: Mapping[str, str],
    groups: GroupsExplainer,
) -> NodeAnswer:
    answer = NodeAnswer(
        node=entry.name,
        fits=not check.reason,
        reason=check.reason,
        message=check.message,
        waits=check.waits,
        report=report_of(entry),
        rules=_assumed(entry),
        totals=_totals(entry, pod),
        groups=groups.answer(entry, check),
    )
    outlook = entry.outlook()
    if outlook is None or pod.shape.malformed or not pod.shape.may_need_zone or entry.distrust():
        return answer
    asked = replace(pod.shape.pod, uid=pod.kubelet_uid)
    told = explain.explain(outlook.predicted, asked)
    # What another rule refuses it refuses of a smaller pod as well.
    is_about_room = check.reason.startswith((told.admission.reason, "Insufficient "))
    room = {name: free for name, (_, free) in answer.totals.items()}
    return replace(
        answer,
        container=told.container,
        zones=told.zones,
        lands=told.lands if answer.fits else {},
        would_help=tuple(names.get(uid, uid) for uid in told.would_help),
        advice=advise(outlook.predicted, asked, told, room)
        if is_about_room and not pod.node
        else (),
    )
