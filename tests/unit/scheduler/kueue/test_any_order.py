"""Whatever happens in whatever order: who was let start finds room, and nobody is forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from rte.scheduler.kueue import machine as machines
from tests.depth import scaled
from tests.unit.scheduler.kueue.quota import Quota, pod_set

#: Pods are of one size, so that no place is worth more than another; of zones with 7 and 8 free
#: CPUs, three pods of 4 fit a node.
CPU = "4"


class Admission(RuleBasedStateMachine):
    """Workloads come, run, are evicted and end; writes are late; replicas take over."""

    waiting = Bundle("waiting")
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota(hold_s=1e6)
        for number in range(2):
            self.quota.desk.node(f"n{number}")
        self.quota.check()
        self.number = 0

    @rule(target=waiting, count=st.integers(1, 4))
    def come(self, count: int) -> str:
        self.number += 1
        key = self.quota.workload(f"w{self.number}", pod_set(count=count, cpu=CPU))
        self.quota.settle()
        return key

    @rule()
    def writes_are_late(self) -> None:
        self.quota.writes = False

    @rule()
    def answers_are_late(self) -> None:
        self.quota.answers = False

    @rule()
    def answers_come(self) -> None:
        self.quota.answers = True
        self.quota.answer()
        self.quota.settle()

    @rule()
    def writes_come_through(self) -> None:
        self.quota.writes = True
        self.quota.write()
        self.quota.settle()

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.quota.pass_time(seconds)

    @rule(key=waiting)
    def touch(self, key: str) -> None:
        """Kueue writes something else."""
        if key in self.quota.workloads:
            self.quota.put(key, self.quota.workloads[key])

    @rule(target=running, key=consumes(waiting))
    def start(self, key: str) -> str:
        """All pods of a Workload that may start come, and each is placed at once."""
        if "Admitted" in self.quota.conditions(key):
            assert all(self.quota.desk.where(uid) for uid in self.quota.start(key))
        return key

    @rule(key=consumes(running))
    def finish(self, key: str) -> None:
        self.quota.finish(key)

    @rule(key=consumes(waiting))
    def evict(self, key: str) -> None:
        self.quota.evict(key)
        self.quota.settle()

    @rule(key=consumes(waiting))
    def delete(self, key: str) -> None:
        self.quota.delete(key)
        self.quota.settle()

    @rule()
    def another_replica(self) -> None:
        self.quota.writes = self.quota.answers = True
        self.quota.restart()
        self.quota.settle()

    @invariant()
    def what_fits_is_ready_in_the_end(self) -> None:
        """Nobody waits who would fit: the last word of the machine is that of the scheduler."""
        quota = self.quota
        if not quota.writes or not quota.answers:
            return
        quota.pass_time(2 * machines.AGAIN_S)
        for key, body in quota.workloads.items():
            if "QuotaReserved" in quota.conditions(key) and quota.state(key)["state"] == "Pending":
                if "Finished" in quota.conditions(key):
                    continue
                found = machines.pods.pods_of(
                    machines.objects.read_workload(body), {}, {}, quota.desk.machine.cluster.shapes
                )
                assert isinstance(found, list)
                ahead = [each.pod for each in quota.machine._promises.left()]
                question = quota.desk.machine.rehearse(ahead, [each.pod for each in found])
                assert not isinstance(question, str)
                assert quota.desk.machine.rehearsed(question.find_out()), key


Admission.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=25)
TestAdmission = Admission.TestCase
