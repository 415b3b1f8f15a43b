"""Which nodes a device or an allocation is for (``component-helpers/.../nodeaffinity``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.dra.objects import NodeSelector, Requirement, SelectorTerm

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Node:
    """What allocation reads of a Node object.

    Attributes:
        name: its name.
        labels: its labels.
        declared_features: ``status.declaredFeatures``.
        allocatable: extended resources that device plugins serve there, with their amounts.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()
    allocatable: Mapping[str, int] = field(default_factory=dict)


def matches(
    node: Node, *, name: str | None, every: bool | None, selector: NodeSelector | None
) -> bool:
    """Whether a slice or device with this node selection is for the node (``NodeMatches``)."""
    if name:
        return node.name == name
    if every:
        return True
    return selector is not None and selects(selector, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether one of the terms holds; a term without conditions holds nowhere."""
    return any(_term_holds(term, node) for term in selector.node_selector_terms)


def _term_holds(term: SelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(one, node.labels) for one in term.match_expressions) and all(
        one.key in fields and _holds(one, fields) for one in term.match_fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    texts = (value, requirement.values[0])
    if not all(_INTEGER.fullmatch(text) for text in texts):
        return False
    have, bound = map(int, texts)
    return have > bound if requirement.operator == "Gt" else have < bound
