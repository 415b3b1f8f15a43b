"""Which nodes a device or an allocation is for (``component-helpers/.../nodeaffinity``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from rte.k8s import selectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.k8s.wire import NodeSelector


@dataclass(frozen=True, kw_only=True)
class ClaimNode:
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
    node: ClaimNode, *, name: str | None, every: bool | None, selector: NodeSelector | None
) -> bool:
    """Whether a slice or device with this node selection is for the node (``NodeMatches``)."""
    if name:
        return node.name == name
    if every:
        return True
    return selector is not None and selects(selector, node)


def selects(selector: NodeSelector, node: ClaimNode) -> bool:
    """Whether one of the terms holds; a term without conditions holds nowhere."""
    return any(term.matches(node.name, node.labels) for term in _terms(selector))


_terms = lru_cache(maxsize=4096)(selectors.node_terms)
