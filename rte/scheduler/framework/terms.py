"""Inter-pod terms and spread constraints, resolved for the pod that has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rte.k8s import selectors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from rte.k8s import wire
    from rte.k8s.selectors import Selector

#: kube-scheduler's hardPodAffinityWeight.
_HARD_WEIGHT = 1


class Labelled(Protocol):
    """A pod, as far as terms look at it."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod term, resolved for the pod that has it: whom it matches, over which domains."""

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector
    topology_key: str
    weight: int = 0

    @property
    def key(self) -> Hashable:
        """Identifies whom it matches (domains aside)."""
        return (self.namespaces, self.namespace_selector, self.selector)

    def matches(
        self,
        pod: Labelled,
        namespaces: Mapping[str, Mapping[str, str]],
        absent: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether the pod is one of those meant.

        kube-scheduler lists the namespaces that the terms of the pod to be placed select, so one
        without an object is not among them; to the terms of placed pods it is one without labels.

        Args:
            pod: that may be meant.
            namespaces: name -> labels.
            absent: labels of a namespace that has no object; None: only a selector of all means it.
        """
        return self._is_inside(pod.namespace, namespaces, absent) and self.selector.matches(
            pod.labels
        )

    def _is_inside(
        self,
        name: str,
        namespaces: Mapping[str, Mapping[str, str]],
        absent: Mapping[str, str] | None,
    ) -> bool:
        if name in self.namespaces:
            return True
        chosen = self.namespace_selector
        if chosen is None:
            return False
        labels = namespaces.get(name, absent)
        return chosen.requirements == () if labels is None else chosen.matches(labels)


@dataclass(frozen=True, slots=True)
class Company:
    """A pod's inter-pod terms: those that must hold and those that it would like."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    liked: tuple[Term, ...] = ()
    disliked: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.liked or self.disliked)

    def attraction(self) -> Iterable[Term]:
        """What a placed pod means for the scores of others, dislikes with a weight below zero.

        A required affinity counts as liked a little (hardPodAffinityWeight 1).
        """
        yield from self.liked
        for term in self.affinity:
            yield replace(term, weight=_HARD_WEIGHT)
        for term in self.disliked:
            yield replace(term, weight=-term.weight)


#: Of pods without such terms.
ALONE = Company()


@dataclass(frozen=True, slots=True)
class ResolvedSpread:
    """One topology spread constraint, resolved for the pod that has it."""

    topology_key: str
    selector: Selector
    max_skew: int
    min_domains: int
    hard: bool
    by_affinity: bool
    by_taints: bool


def company(rules: wire.PodRules, namespace: str, labels: Mapping[str, str]) -> Company:
    """The terms of a pod with these labels."""
    affinity = rules.affinity
    if affinity is None:
        return ALONE
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity

    def hard(part: wire.PodAffinity | None) -> tuple[Term, ...]:
        given = (part.required if part else None) or ()
        return tuple(_term(item, namespace, labels) for item in given)

    def soft(part: wire.PodAffinity | None) -> tuple[Term, ...]:
        given = (part.preferred if part else None) or ()
        return tuple(
            _term(item.pod_affinity_term, namespace, labels, item.weight or 0)
            for item in given
            if item.pod_affinity_term is not None
        )

    return Company(hard(near), hard(far), soft(near), soft(far))


def spread(item: wire.SpreadConstraint, labels: Mapping[str, str]) -> ResolvedSpread:
    """The constraint of a pod with these labels."""
    base = selectors.selector(item.label_selector)
    return ResolvedSpread(
        topology_key=item.topology_key or "",
        selector=base.narrowed(item.match_label_keys or (), labels, "In"),
        max_skew=item.max_skew or 1,
        min_domains=item.min_domains or 1,
        hard=(item.when_unsatisfiable or "DoNotSchedule") == "DoNotSchedule",
        by_affinity=(item.node_affinity_policy or "Honor") == "Honor",
        by_taints=(item.node_taints_policy or "Ignore") == "Honor",
    )


def _term(
    item: wire.PodAffinityTerm, namespace: str, labels: Mapping[str, str], weight: int = 0
) -> Term:
    every = item.namespace_selector
    names = item.namespaces or ()
    if not names and every is None:
        names = (namespace,)
    chosen = selectors.selector(item.label_selector)
    # Of a pod that the API server has stored they are in the selector, with the labels of that day.
    told = {each.key for each in chosen.requirements or ()}
    like = [key for key in item.match_label_keys or () if key not in told]
    unlike = [key for key in item.mismatch_label_keys or () if key not in told]
    chosen = chosen.narrowed(like, labels, "In").narrowed(unlike, labels, "NotIn")
    return Term(
        namespaces=frozenset(names),
        namespace_selector=None if every is None else selectors.selector(every),
        selector=chosen,
        topology_key=item.topology_key or "",
        weight=weight,
    )
