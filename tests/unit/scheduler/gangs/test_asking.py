"""While the solver works on a gang: nothing is built on the answer to another question."""

from __future__ import annotations

from rte.scheduler.loop import messages
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.gangs.build import Square


def asked(*cpus: str, **options: object) -> tuple[Square, list[str]]:
    """A desk of one node on which the solver has been asked about a gang of such pods."""
    desk = Square(1, **options)
    desk.solves = False
    desk.group("g", len(cpus))
    uids = desk.members("g", cpus)
    assert len(desk.questions) == 1
    return desk, uids


def full() -> Square:
    """A desk of three nodes, each with one pod that takes all of it."""
    desk = Square(3)
    for name in ("n0", "n1", "n2"):
        desk.pod(f"on-{name}", ["7", "8"], node_name=name)
    desk.run_all()
    return desk


def answer(desk: Square) -> None:
    """The solver answers, and from now on at once."""
    desk.solves = True
    desk.handle(messages.Tick())


def test_nobody_else_is_decided_about_meanwhile() -> None:
    desk, uids = asked("7", "8")
    other = desk.pod("other", "8")
    assert not desk.where(other)
    answer(desk)
    assert desk.placed(uids) == 2
    assert not desk.where(other)


def test_a_gang_that_has_waited_before_holds_up_nobody_unless_its_places_were_taken() -> None:
    desk = Square(1)
    desk.group("g", 2)
    desk.pod("large", "8", node_name="n0")
    uids = desk.members("g", ["7", "8"])
    assert desk.placed(uids) == 0
    desk.solves = False
    desk.end("uid-large")
    assert len(desk.questions) == 1
    small = desk.pod("small", "2")
    assert desk.where(small) == "n0"
    desk.solve()
    desk.handle(messages.Tick())
    assert desk.placed(uids) == 0
    assert len(desk.questions) == 1
    later = desk.pod("later", "1")
    assert desk.where(later) == ""
    desk.end(small)
    answer(desk)
    assert desk.placed(uids) == 2
    assert desk.where(later) == ""


def test_places_that_somebody_else_has_taken_are_not_given() -> None:
    desk, uids = asked("7", "8")
    desk.pod("foreign", "7", node_name="n0")
    answer(desk)
    desk.pass_time(1.0)
    assert desk.placed(uids) == 0
    assert "1 find" in desk.said(uids[0])
    desk.end("uid-foreign")
    assert desk.placed(uids) == 2


def test_room_that_comes_meanwhile_is_found_afterwards() -> None:
    desk, uids = asked("7", "8", "8")
    desk.node("n1", state(machine(cpus=8)))
    answer(desk)
    assert desk.placed(uids) == 3


def test_a_node_that_goes_meanwhile_is_no_place() -> None:
    desk, uids = asked("7", "8")
    desk.delete("nodes", "n0")
    answer(desk)
    assert desk.placed(uids) == 0
    desk.node("n1", state(machine(cpus=8)))
    assert desk.placed(uids) == 2


def test_a_pod_that_goes_meanwhile_leaves_the_others_waiting() -> None:
    desk, uids = asked("7", "8")
    desk.delete("pods", uids[0])
    answer(desk)
    desk.pass_time(1.0)
    assert desk.placed(uids) == 0
    assert "waits for 1 more pod" in desk.said(uids[1])
    late = desk.pod("late", "7", schedulingGroup={"podGroupName": "g"})
    assert desk.placed([uids[1], late]) == 2


def test_a_gang_that_goes_meanwhile_leaves_nothing_behind() -> None:
    desk, uids = asked("7", "8")
    for uid in uids:
        desk.delete("pods", uid)
    answer(desk)
    assert not desk.machine.queue.records
    assert not desk.machine.has_work()


def test_a_number_that_changes_meanwhile_counts() -> None:
    desk, uids = asked("7", "8", "8")
    desk.group("g", 2)
    answer(desk)
    assert desk.placed(uids) == 2


def test_after_the_lease_is_lost_an_answer_decides_nothing() -> None:
    desk, uids = asked("7", "8")
    desk.handle(messages.Leading(active=False))
    desk.solve()
    assert desk.placed(uids) == 0
    answer(desk)
    desk.handle(messages.Leading(active=True))
    assert desk.placed(uids) == 2


def test_a_victim_that_ends_meanwhile_spares_the_others() -> None:
    desk = Square(1)
    low = [desk.pod(f"low{n}", "7") for n in range(2)]
    desk.run_all()
    desk.solves = False
    desk.group("g", 1)
    desk.members("g", ["7"], priority=10)
    desk.solve()  # it fits nowhere; as if all who leave by themselves had left it does not either
    desk.solve()
    assert len(desk.questions) == 1
    desk.end(low[0])
    answer(desk)
    assert not list(desk.told(messages.Evict))


def test_a_reservation_is_not_made_on_a_node_that_has_gone() -> None:
    desk = Square(1, reserve_after=5.0, preempts=False)
    low = [desk.pod(f"low{n}", "7") for n in range(2)]
    desk.run_all()
    desk.group("g", 2)
    desk.members("g", ["8", "7"])
    desk.solves = False
    desk.pass_time(6.0)
    assert desk.questions
    for uid in low:
        desk.delete("pods", uid)
    desk.delete("reports", "n0")
    desk.delete("nodes", "n0")
    answer(desk)
    assert not desk.machine.cluster.nominations
    assert not desk.machine.cluster.nodes


def test_a_gang_that_waits_is_asked_about_where_there_is_room_and_keeps_its_explanation() -> None:
    desk = full()
    desk.group("g", 3)
    uids = desk.members("g", ["5"] * 3)
    desk.pass_time(1.0)
    assert "to blame: node totals" in desk.said(uids[0])
    desk.solves = False
    desk.end("uid-on-n1")
    question = desk.questions[0].question
    assert [node.name for node in question.nodes] == ["n1"]
    assert not question.explains
    answer(desk)
    desk.pass_time(120.0)
    assert desk.placed(uids) == 0
    assert "2 find one; to blame: node totals" in desk.said(uids[0])


def test_nothing_is_asked_while_all_nodes_together_lack_the_cpus() -> None:
    desk = full()
    desk.group("g", 4)
    uids = desk.members("g", ["4"] * 4)
    desk.solves = False
    desk.end("uid-on-n1")
    assert not desk.questions
    desk.end("uid-on-n2")
    assert desk.questions
    answer(desk)
    assert desk.placed(uids) == 4


def test_of_many_gangs_that_wait_one_after_the_other_is_explained_again() -> None:
    desk = Square(1)
    desk.pod("all", ["7", "8"], node_name="n0")
    desk.run_all()
    for number in range(10):
        desk.group(f"g{number}", 3)
        desk.members(f"g{number}", ["5"] * 3)
    desk.pass_time(60.0)
    desk.solves = False
    desk.end("uid-all")
    asked = []
    while desk.questions:
        asked.append(desk.questions[0].question.explains)
        desk.solve()
        desk.handle(messages.Tick())
    assert len(asked) >= 10
    assert sum(asked) == 1
