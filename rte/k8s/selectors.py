"""Label selectors and node selector terms, made ready once and matched often."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: More digits than a label's value may have are no number of anybody.
_MOST_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression (apimachinery ``labels.Requirement.Matches``, node selectors' Gt and Lt)."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def accepts(self, value: str | None) -> bool:
        """Whether this value of the key will do; None: the key is not there."""
        if value is None:
            return self.operator in ("NotIn", "DoesNotExist")
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return True
            case "Gt" | "Lt" if len(self.values) == 1:
                return _compare(self.operator, value, next(iter(self.values)))
        return False


@dataclass(frozen=True, slots=True)
class Selector:
    """A LabelSelector; ``requirements`` is None for the absent one, which matches nothing."""

    requirements: tuple[Requirement, ...] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        if self.requirements is None:
            return False
        return all(item.accepts(labels.get(item.key)) for item in self.requirements)

    def narrowed(self, keys: Iterable[str], labels: Mapping[str, str], operator: str) -> Selector:
        """With a requirement on the value of each key that the labels have.

        ``matchLabelKeys`` (operator In) and ``mismatchLabelKeys`` (NotIn), as kube-apiserver and
        kube-scheduler merge them.
        """
        more = tuple(
            Requirement(key, operator, frozenset((labels[key],))) for key in keys if key in labels
        )
        if self.requirements is None or not more:
            return self
        return Selector(self.requirements + more)


NOTHING = Selector(None)


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One node selector term: all its expressions on labels and all on fields; empty: nothing."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of that name and with these labels is meant."""
        if not self.expressions and not self.fields:
            return False
        return all(item.accepts(labels.get(item.key)) for item in self.expressions) and all(
            item.key == "metadata.name" and item.accepts(name) for item in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """``nodeSelector`` and the required node affinity of a pod, or a volume's node affinity.

    ``terms`` are alternatives; None: nothing is asked.
    """

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of that name and with these labels will do."""
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)


def selector(raw: wire.LabelSelector | None) -> Selector:
    """A selector of the API made ready; equal ones are equal whatever their order."""
    if raw is None:
        return NOTHING
    found = {
        Requirement(key, "In", frozenset((value,)))
        for key, value in (raw.match_labels or {}).items()
    }
    found.update(requirement(item) for item in raw.match_expressions or ())
    return Selector(tuple(sorted(found, key=lambda r: (r.key, r.operator, sorted(r.values)))))


def node_selection(rules: wire.PodRules) -> NodeSelection:
    """What a pod asks of its node's labels and name."""
    affinity = rules.affinity.node_affinity if rules.affinity else None
    required = affinity.required if affinity else None
    return NodeSelection(
        tuple(sorted((rules.node_selector or {}).items())),
        None if required is None else node_terms(required),
    )


def parse_selector(obj: object, what: str) -> Selector:
    """A LabelSelector out of JSON; None matches nothing.

    Raises:
        errors.ParseError: it is malformed.
    """
    return NOTHING if obj is None else selector(wire.read(obj, wire.LabelSelector, what))


def node_term(raw: wire.NodeSelectorTerm) -> NodeTerm:
    """A node selector term made ready."""
    return NodeTerm(
        tuple(requirement(item) for item in raw.match_expressions or ()),
        tuple(requirement(item) for item in raw.match_fields or ()),
    )


def node_terms(raw: wire.NodeSelector) -> tuple[NodeTerm, ...]:
    """The alternatives of a node selector made ready."""
    return tuple(node_term(term) for term in raw.node_selector_terms or ())


def parse_node_terms(obj: object, what: str) -> tuple[NodeTerm, ...]:
    """The alternatives of a NodeSelector out of JSON.

    Raises:
        errors.ParseError: it is malformed.
    """
    return node_terms(wire.read(obj, wire.NodeSelector, what))


_PART = re.compile(
    r"\s*(?P<absent>!)?\s*(?P<key>[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)"
    r"(\s*(?P<sign>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)"
    r"|\s+(?P<word>in|notin)\s*\((?P<values>[-A-Za-z0-9_., ]*)\))?\s*(?:,(?=.)|$)",
    re.ASCII,
)


_SIGNS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


def parse_text(text: str) -> NodeTerm:
    """A label selector as ``kubectl -l`` takes it; empty: nothing.

    ``key``, ``!key``, ``key=value``, ``key!=value``, ``key in (a,b)``, ``key notin (a,b)``,
    ``key>1`` and ``key<1``, all of which have to hold; the negative ones hold where the key is not
    there.

    Raises:
        errors.ParseError: it is malformed.
    """
    found, at = [], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or (part["absent"] and (part["sign"] or part["word"])):
            raise errors.ParseError("label selector", text, f"cannot read {text[at:]!r}")
        if part["sign"]:
            operator, values = _SIGNS[part["sign"]], [part["value"]]
        elif part["word"]:
            operator = "In" if part["word"] == "in" else "NotIn"
            values = [value.strip() for value in part["values"].split(",")]
        else:
            operator, values = "DoesNotExist" if part["absent"] else "Exists", []
        found.append(Requirement(part["key"], operator, frozenset(values)))
        at = part.end()
    return NodeTerm(tuple(found), ())


def requirement(raw: wire.Expression) -> Requirement:
    """A requirement of the API made ready."""
    return Requirement(raw.key or "", raw.operator or "", frozenset(raw.values or ()))


def _compare(operator: str, value: str, bound: str) -> bool:
    # What no label may be makes a term that matches nothing (labels.NewRequirement): a sign first.
    left, right = _integer(value), _integer(bound) if bound[:1].isalnum() else None
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _integer(text: str) -> int | None:
    """A number of 64 bits as Go's ``strconv.ParseInt`` reads it, None where it reads none."""
    if len(text) > _MOST_DIGITS or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
