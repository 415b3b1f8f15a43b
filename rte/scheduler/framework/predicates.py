"""What a node must offer, one rule per function: None = passes, else the reason in words.

The rules and most of the words are kube-scheduler's (``pkg/scheduler/framework/plugins``), so that
events read as operators know them. What depends on one node and the pod alone is here; rules that
look at other nodes are in :mod:`rte.scheduler.plugins.surroundings`, NUMA zones in
:mod:`rte.scheduler.framework.node`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.scheduler.framework.objects import NodeInfo
    from rte.scheduler.framework.shape import Shape

#: The taint that a cordoned node is treated as having.
UNSCHEDULABLE_TAINT = ("node.kubernetes.io/unschedulable", "", "NoSchedule")

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def constraints(shape: Shape, node: NodeInfo) -> str | None:
    """Rules that compare only the Node with the pod: cordon, selector and affinity, taints."""
    if node.unschedulable and not tolerates(shape, UNSCHEDULABLE_TAINT):
        return "node(s) were unschedulable"
    if not selects(shape, node):
        return "node(s) didn't match Pod's node affinity/selector"
    taint = next(
        (t for t in node.taints if t[2] in _HARD_EFFECTS and not tolerates(shape, t)), None
    )
    if taint:
        return f"node(s) had untolerated taint(s) {taint[0]}"
    return None


def resources(
    totals: Mapping[str, int], allocatable: Mapping[str, int], used: Mapping[str, int]
) -> str | None:
    """Node totals: requests of the node's pods and this one's against allocatable.

    The kubelet checks the same sum after its managers. Amounts in milli-CPU, bytes, units.
    """
    for name, amount in totals.items():
        if amount > allocatable.get(name, 0) - used.get(name, 0):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return None


def ports(
    wanted: Iterable[tuple[str, str, int]], taken: Iterable[tuple[str, str, int]]
) -> str | None:
    """Host ports: the same protocol and port collide on equal addresses; 0.0.0.0 equals all."""
    held = list(taken)
    for address, protocol, port in wanted:
        for other, other_protocol, other_port in held:
            wildcard = "0.0.0.0" in (address, other)  # noqa: S104
            if (protocol, port) == (other_protocol, other_port) and (wildcard or address == other):
                return "node(s) didn't have free ports for the requested pod ports"
    return None


def tolerates(shape: Shape, taint: tuple[str, str, str]) -> bool:
    """Whether one of the pod's tolerations matches the taint (core/v1 ToleratesTaint)."""
    return any(_tolerated(item, taint) for item in shape.spec.get("tolerations") or ())


def _tolerated(toleration: Mapping[str, Any], taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    if not toleration.get("key"):
        return False
    return operator == "Equal" and str(toleration.get("value") or "") == value


def selects(shape: Shape, node: NodeInfo) -> bool:
    """``nodeSelector`` and the required node affinity."""
    selector = shape.spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    required = (shape.affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return required is None or node_matches(required.get("nodeSelectorTerms") or (), node)


def node_matches(terms: Sequence[Mapping[str, Any]], node: NodeInfo) -> bool:
    """Node selector terms are alternatives; an empty term matches nothing."""
    return any(term_matches(term, node) for term in terms)


def term_matches(term: Mapping[str, Any], node: NodeInfo) -> bool:
    """One node selector term: all expressions on labels and all on fields."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(requirement(item, node.labels) for item in expressions) and all(
        requirement(item, {"metadata.name": node.name}) for item in fields
    )


def label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector: None matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != v for key, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(requirement(item, labels) for item in selector.get("matchExpressions") or ())


def requirement(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One expression of a node or label selector (apimachinery labels.Requirement.Matches)."""
    key, operator = str(item.get("key")), item.get("operator")
    values: Sequence[str] = item.get("values") or ()
    if key not in labels:
        return operator in ("NotIn", "DoesNotExist")
    value = labels[key]
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return True
    return operator in ("Gt", "Lt") and len(values) == 1 and _compare(operator, value, values[0])


def _compare(operator: str, value: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
