"""Labels, taints and counts by row say what a look at each node and pod says."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from rte.k8s.selectors import NodeTerm, Requirement, Selector
from rte.k8s.tolerations import HARD_EFFECTS, tolerates
from rte.k8s.wire import Taint, Toleration
from rte.scheduler.framework.columns import Columns
from rte.scheduler.framework.matches import MatchIndex
from rte.scheduler.framework.objects import NodeInfo
from rte.scheduler.framework.terms import Company, Term

_WORDS = st.sampled_from(["a", "b", "7", "9"])
_LABELS = st.dictionaries(_WORDS, _WORDS, max_size=3)
_EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
_TAINTS = st.lists(st.builds(Taint, key=_WORDS, value=_WORDS, effect=_EFFECTS), max_size=2).map(
    tuple
)
_REQUIREMENTS = st.builds(
    Requirement,
    _WORDS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.frozensets(_WORDS, max_size=2),
)
_TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=_WORDS,
        operator=st.sampled_from(["Exists", "Equal"]),
        value=_WORDS,
        effect=st.none() | _EFFECTS,
    ),
    max_size=2,
)


def _node(name, labels, taints):
    return NodeInfo(
        name=name, uid="", labels=labels, taints=taints, unschedulable=False, allocatable={}
    )


@given(
    changes=st.lists(st.tuples(st.integers(0, 5), st.none() | st.tuples(_LABELS, _TAINTS))),
    requirements=st.lists(_REQUIREMENTS, max_size=3).map(tuple),
    named=st.lists(
        st.builds(
            Requirement,
            st.sampled_from(["metadata.name", "metadata.uid"]),
            st.sampled_from(["In", "NotIn"]),
            st.frozensets(st.sampled_from(["n1", "n2"])),
        ),
        max_size=1,
    ).map(tuple),
    tolerations=_TOLERATIONS,
    early=st.booleans(),
)
def test_rules_over_columns_are_those_over_nodes(
    changes, requirements, named, tolerations, early
) -> None:
    columns, nodes = Columns(), {}
    columns.grow(6)
    term = NodeTerm(requirements, named)
    if early:
        columns.meant(term)
    for row, what in changes:
        nodes.pop(row, None)
        if what is not None:
            labels, taints = what
            nodes[row] = _node(f"n{row}", labels, taints)
        columns.load(row, nodes.get(row))
    meant, tolerated = columns.meant(term), columns.tolerated(tolerations)
    assert columns.present.nonzero()[0].tolist() == sorted(nodes)
    disliked = columns.disliked(tolerations)
    for row, info in nodes.items():
        assert meant[row] == term.matches(info.name, info.labels)
        bad = [t for t in info.taints if not tolerates(tolerations, t)]
        assert tolerated[row] == (not any(t.effect in HARD_EFFECTS for t in bad))
        soft = sum(t.effect == "PreferNoSchedule" for t in bad)
        assert soft == (0 if disliked is None else disliked[row])


def test_values_of_nodes_that_are_gone_are_forgotten() -> None:
    columns = Columns()
    columns.grow(1)
    for number in range(1000):
        labels = {"kubernetes.io/hostname": f"h{number}"}
        taint = Taint(key="k", value=str(number), effect="NoSchedule")
        columns.load(0, _node(f"n{number}", labels, (taint,)))
        assert columns.labels("kubernetes.io/hostname").of_row[0]
    assert len(columns.labels("kubernetes.io/hostname").numbers) <= 2 * columns.rows
    assert len(columns._taint_sets) <= 2 * columns.rows


_SELECTORS = st.builds(Selector, st.none() | st.lists(_REQUIREMENTS, max_size=2).map(tuple))
_TERMS = st.builds(
    Term,
    st.frozensets(st.sampled_from(["x", "y"]), max_size=2),
    st.none() | _SELECTORS,
    _SELECTORS,
    st.just("zone"),
)


def _pod(namespace, labels, *, deleting, terms=()):
    shape = SimpleNamespace(company=Company(anti_affinity=terms), claims=())
    return SimpleNamespace(
        namespace=namespace, labels=labels, deleting=deleting, owner="", shape=shape
    )


@given(
    pods=st.lists(
        st.tuples(
            st.sampled_from(["x", "y"]), _LABELS, st.booleans(), st.integers(0, 2), st.booleans()
        )
    ),
    terms=st.lists(_TERMS, min_size=1, max_size=2),
    asked_at=st.integers(0, 5),
    namespaces=st.dictionaries(st.sampled_from(["x", "y"]), _LABELS),
)
def test_counts_kept_up_are_those_of_a_look_at_all_pods(pods, terms, asked_at, namespaces) -> None:
    known: dict[str, dict[str, str]] = {}
    index, there = MatchIndex(known), []
    for number, (namespace, labels, deleting, row, stays) in enumerate(pods):
        if number == asked_at:
            index.matching(terms)
            index.matching(terms, lasting=True)
        if number == asked_at + 1:
            known.update(namespaces)
            index.namespaces_changed()
        pod = _pod(namespace, labels, deleting=deleting)
        index.count(pod, row, 1)
        if stays:
            there.append((pod, row))
        else:
            index.count(pod, row, -1)
    for lasting in (False, True):
        want: dict[int, int] = {}
        for pod, row in there:
            if all(t.matches(pod, known) for t in terms) and not (lasting and pod.deleting):
                want[row] = want.get(row, 0) + 1
        rows, numbers = index.matching(terms, lasting=lasting).arrays()
        assert dict(zip(rows.tolist(), numbers.tolist(), strict=True)) == want


@given(terms=st.lists(_TERMS, max_size=4), namespace=st.sampled_from(["x", "y"]), labels=_LABELS)
def test_a_pod_is_told_of_all_terms_of_placed_pods_that_match_it(terms, namespace, labels) -> None:
    index = MatchIndex({"y": {"a": "b"}})
    owner = _pod("x", {}, deleting=False, terms=tuple(terms))
    index.count(owner, 3, 1)
    pod = _pod(namespace, labels, deleting=False)
    found = [term for term, _ in index.refusing.matching(pod, {"y": {"a": "b"}})]
    assert len(found) == len(set(found))
    # To terms of placed pods a namespace without an object has no labels.
    assert set(found) == {t for t in terms if t.matches(pod, {"y": {"a": "b"}}, absent={})}
    index.count(owner, 3, -1)
    assert not index.refusing
    assert not index.refusing._buckets


def test_keys_that_no_node_has_cost_one_column_together() -> None:
    columns = Columns()
    columns.grow(2)
    columns.load(0, _node("n", {"a": "x"}, ()))
    known = columns.labels("a")
    assert columns.labels("b") is columns.labels("c") is not known
    columns.load(1, _node("m", {"b": "y"}, ()))
    assert list(columns.labels("b").of_row[:2]) == [0, 1]
    columns.load(1, _node("m", {}, ()))
    assert columns.labels("b") is columns.labels("c")
    columns.load(0, None)
    assert columns.labels("a") is columns.labels("c")
    columns.grow(1000)
    assert len(columns.labels("a").of_row) == columns.rows
