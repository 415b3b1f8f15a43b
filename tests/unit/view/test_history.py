"""A bounded memory shows what was, as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rte.view.history import History

changes = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.none() | st.fixed_dictionaries({"v": st.integers(0, 9)}),
        min_size=1,
    ),
    max_size=20,
)


@given(changes)
def test_every_moment_can_be_seen_again(steps) -> None:
    history, state, told = History(), {}, []
    for at, step in enumerate(steps):
        for name, value in step.items():
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value
        history.record(float(at), step, [{"pod": at}])
        told.append([state[name] for name in sorted(state)])
    for at, nodes in enumerate(told):
        assert history.at(at + 0.5) == {"nodes": nodes, "waiting": [{"pod": at}]}


@given(changes.filter(bool))
def test_what_does_not_fit_is_folded_into_the_beginning(steps) -> None:
    small, large = History(most_bytes=700), History()
    for at, step in enumerate(steps):
        small.record(float(at), step, [])
        large.record(float(at), step, [])
    assert small.begins is not None
    for at in range(int(small.begins), len(steps)):
        assert small.at(at) == large.at(at)


def test_before_the_beginning_there_is_nothing() -> None:
    history = History()
    assert history.begins is None
    history.record(5.0, {"a": {"v": 1}}, [])
    assert history.begins == 5.0
    assert history.at(4.0) == {"nodes": [], "waiting": []}
