"""Types of the parts of a Pod that are read as they are (k8s.io/api core/v1).

Checked before anything is read, so that rules need not doubt it. What a field means is not checked
here: an operator that nobody knows matches nothing. ``null`` stands for an absent field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[object, str], None]


def check_pod(obj: object) -> None:
    """Refuse a Pod whose plain fields have another type than the API's; for each version of it.

    Raises:
        errors.ParseError: names the first such field.
    """
    _POD(obj, "")


def check_node(obj: object) -> None:
    """Refuse a Node whose labels are not text.

    Raises:
        errors.ParseError: names the first such field.
    """
    _NODE(obj, "")


def check_rules(spec: object) -> None:
    """Refuse a specification whose rules have another type than the API's; once for each shape.

    Raises:
        errors.ParseError: names the first such part.
    """
    _RULES(spec, ".spec")


def _is(kind: type, words: str) -> Rule:
    def rule(value: object, path: str) -> None:
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            raise errors.ParseError(path.lstrip(".") or "pod", value, f"expected {words}")

    return rule


_TEXT = _is(str, "text")
_NUMBER = _is(int, "a whole number")
_OBJECT = _is(dict, "an object")
_LIST = _is(list, "a list")


def _fields(**rules: Rule) -> Rule:
    """An object with these fields; others are of no interest."""

    def rule(value: object, path: str) -> None:
        _OBJECT(value, path)
        for name, inner in rules.items():
            part = value.get(name)  # type: ignore[attr-defined]
            if part is not None:
                inner(part, f"{path}.{name}")

    return rule


def _each(inner: Rule) -> Rule:
    """A list of such values."""

    def rule(value: object, path: str) -> None:
        _LIST(value, path)
        for number, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
            inner(item, f"{path}[{number}]")

    return rule


def _table(value: object, path: str) -> None:
    """Text by name."""
    _OBJECT(value, path)
    for name, text in value.items():  # type: ignore[attr-defined]
        _TEXT(text, f"{path}.{name}")


_TEXTS = _each(_TEXT)
_EXPRESSIONS = _each(_fields(key=_TEXT, operator=_TEXT, values=_TEXTS))
_SELECTOR = _fields(matchLabels=_table, matchExpressions=_EXPRESSIONS)
_NODE_TERM = _fields(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM = _fields(
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
    namespaces=_TEXTS,
    topologyKey=_TEXT,
    matchLabelKeys=_TEXTS,
    mismatchLabelKeys=_TEXTS,
)
_COMPANY = _fields(
    requiredDuringSchedulingIgnoredDuringExecution=_each(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=_each(
        _fields(weight=_NUMBER, podAffinityTerm=_POD_TERM)
    ),
)
_NODES = _fields(
    requiredDuringSchedulingIgnoredDuringExecution=_fields(nodeSelectorTerms=_each(_NODE_TERM)),
    preferredDuringSchedulingIgnoredDuringExecution=_each(
        _fields(weight=_NUMBER, preference=_NODE_TERM)
    ),
)
_CONTAINERS = _each(
    _fields(
        name=_TEXT,
        restartPolicy=_TEXT,
        ports=_each(_fields(hostPort=_NUMBER, hostIP=_TEXT, protocol=_TEXT)),
    )
)
_SPREAD = _fields(
    maxSkew=_NUMBER,
    minDomains=_NUMBER,
    topologyKey=_TEXT,
    whenUnsatisfiable=_TEXT,
    labelSelector=_SELECTOR,
    matchLabelKeys=_TEXTS,
    nodeAffinityPolicy=_TEXT,
    nodeTaintsPolicy=_TEXT,
)
_RULES = _fields(
    affinity=_fields(nodeAffinity=_NODES, podAffinity=_COMPANY, podAntiAffinity=_COMPANY),
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    nodeSelector=_table,
    tolerations=_each(_fields(key=_TEXT, operator=_TEXT, value=_TEXT, effect=_TEXT)),
    topologySpreadConstraints=_each(_SPREAD),
)
_POD = _fields(
    metadata=_fields(
        name=_TEXT,
        namespace=_TEXT,
        uid=_TEXT,
        creationTimestamp=_TEXT,
        labels=_table,
        annotations=_table,
    ),
    spec=_fields(
        containers=_LIST,
        nodeName=_TEXT,
        preemptionPolicy=_TEXT,
        priority=_NUMBER,
        schedulerName=_TEXT,
        schedulingGates=_LIST,
        volumes=_LIST,
    ),
    status=_fields(
        conditions=_each(_OBJECT),
        containerStatuses=_each(_OBJECT),
        initContainerStatuses=_each(_OBJECT),
        phase=_TEXT,
    ),
)
_NODE = _fields(metadata=_fields(name=_TEXT, uid=_TEXT, labels=_table))
