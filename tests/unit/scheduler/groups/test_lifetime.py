"""Pods with groups in every order: decided, bound, failed at each step, ended, deleted, adopted;
nodes are kept for those that wait, go and come back, devices too, and the scheduler restarts.

After each step what nodes hold is what the API's annotations say and what is being bound, no thing
is held twice, and what was written is true.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rte.placement.groups import holdings
from rte.placement.groups.allocation import parse_record
from rte.placement.groups.check import violations
from rte.placement.groups.holdings import held_by
from rte.placement.groups.nhd import labels
from rte.placement.groups.nhd.adopt import ANNOTATION as NHD_FILE
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.policies import read_policies
from rte.scheduler.loop import messages
from rte.scheduler.loop.messages import Bound, Outcome
from rte.scheduler.plugins.groups.rules import GroupsNode, ProcessingGroups
from rte.scheduler.plugins.registry import RuleOptions
from tests.depth import scaled
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.scheduler.groups.rack import Rack, asking

if TYPE_CHECKING:
    from rte.scheduler.plugins.groups.books import Books

REQUESTS = (
    asking({"queues": [{"rx": 20, "tx": 20}], "workers": 1}),
    asking({"gpus": [{"feeders": 1}]}),
    asking({"workers": 5}, misc={"count": 2}),
    asking({"workers": 3}, mapping="none"),
    asking({"gpus": [{}], "nics": [{"exclusive": True}]}, {"workers": 1}),
)
POLICY = read_policies({"nicSharing": "bandwidth", "settleSeconds": 10})
NODES = ("a", "b")
#: NHD's hook has labelled them.
NHDS = {f"{labels.PREFIX}nfd-extras-cpu.numSockets": "2"}
INVENTORY = replace(
    two_sockets(),
    nics=tuple(
        replace(nic, mac=f"02:00:00:00:00:0{i}") for i, nic in enumerate(two_sockets().nics)
    ),
)
#: What NHD placed on CPUs that it may have, with a NIC and a GPU by number.
NHD_POD = """
Hugepages_GB = 1; Ctl : {{ vlan = 1; }};
Mod = ( {{ module = "m"; vlan = 1; dp = ( {{ rx_cores=[{rx}]; tx_cores=[{tx}]; rx_speeds=[1.0];
          tx_speeds=[1.0]; gpu_map=(); }} ); }} );
TopologyCfg : {{ cpu_arch="ANY"; map_type="NUMA"; ext_cores=(); ext_cores_smt=true;
  kni_vlan="Ctl.vlan"; mod_defs=( {{ module="Mod"; data_vlan="vlan";
  dp_group={{ name="dp"; proc_cores_smt=true; }}; }} ); }};
Network_Config = ( {{ mac = "02:00:00:00:00:0{nic}"; rxCores = [{rx}]; txCores = [{tx}]; }} );
"""


class Lifetime(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rack = self.a_scheduler()
        self.number = 0
        self.late: list[messages.Bind] = []

    def a_scheduler(self) -> Rack:
        rack = Rack(options=RuleOptions(policies=POLICY), reserve_after=15.0)
        rack.answers = False
        return rack

    @initialize()
    def begin(self) -> None:
        for name in NODES:
            self.rack.server(name, INVENTORY, labels=NHDS)

    # --- pods ---

    @rule(text=st.sampled_from(REQUESTS), priority=st.sampled_from([0, 0, 5]))
    def a_user_creates_a_pod(self, text: str, priority: int) -> None:
        self.number += 1
        self.rack.asks(text, name=f"p{self.number}", priority=priority)

    @precondition(lambda self: self.rack.binds)
    @rule(
        outcome=st.sampled_from(["bound", "answer lost", "refused", "gone", "abandoned"]),
        chance=st.randoms(use_true_random=False),
    )
    def a_bind_comes_out(self, outcome: str, chance: Any) -> None:
        rack = self.rack
        effect = rack.binds.pop(chance.randrange(len(rack.binds)))
        uid = effect.pod.uid
        there = ("pods", uid) in rack.objects
        if there and outcome in ("bound", "answer lost"):
            assert effect.node in rack.inventories
            self.true(effect)
            rack.bind(effect, answer=outcome == "bound")
            if outcome == "answer lost":
                rack.handle(Bound(uid, Outcome.BOUND, rack.objects["pods", uid]))
        elif there and outcome == "refused":
            rack.handle(Bound(uid, Outcome.REFUSED, message="no"))
        elif there and outcome == "abandoned":
            rack.handle(Bound(uid, Outcome.ABANDONED))
        else:
            rack.objects.pop(("pods", uid), None)
            rack.handle(Bound(uid, Outcome.GONE))

    def true(self, effect: messages.Bind) -> None:
        """What is written is right for the node as it is with all that others hold by the API."""
        text = effect.annotations.get("topology.rte.dev/allocation")
        assert text is not None
        record = parse_record(text)
        assert record.holds_for(effect.pod.uid, effect.node)
        others = self.by_the_api(effect.node).allocations
        request = parse_request(effect.pod.shape.annotations["topology.rte.dev/groups"])
        inventory = self.rack.inventories[effect.node]
        if len(inventory.gpus) == len(INVENTORY.gpus):  # it may have shrunk since the decision
            used = holdings.used_by(others)
            assert not violations(request, record.allocation, inventory, used, POLICY.default)

    @precondition(lambda self: self.rack.bound())
    @rule(how=st.sampled_from(["ends", "fails", "is deleted"]), chance=st.randoms())
    def a_pod_ends(self, how: str, chance: Any) -> None:
        uid = chance.choice(self.rack.bound())
        if how == "is deleted":
            self.rack.delete("pods", uid)
        else:
            self.rack.change(uid, phase="Succeeded" if how == "ends" else "Failed")

    @rule(chance=st.randoms(use_true_random=False))
    def a_user_deletes_a_pod(self, chance: Any) -> None:
        uids = sorted(key for kind, key in self.rack.objects if kind == "pods")
        if uids:
            self.rack.delete("pods", chance.choice(uids))

    @rule(chance=st.randoms(use_true_random=False))
    def a_pod_is_shown_again(self, chance: Any) -> None:
        uids = sorted(key for kind, key in self.rack.objects if kind == "pods")
        if uids:
            self.rack.change(chance.choice(uids), conditions=[])

    @rule(name=st.sampled_from(NODES), core=st.integers(2, 7), nic=st.integers(0, 1))
    def nhd_has_placed_a_pod(self, name: str, core: int, nic: int) -> None:
        """Where nobody of ours is: the two never own a node at once."""
        here = [uid for uid in self.rack.bound() if self.rack.where(uid) == name]
        coming = [bind for bind in self.rack.binds if bind.node == name]
        if ("nodes", name) in self.rack.objects and not here and not coming:
            self.number += 1
            file = NHD_POD.format(rx=core, tx=core + 16, nic=nic)
            self.rack.pod(
                f"nhd{self.number}", "1", annotations={NHD_FILE: file}, node_name=name,
                schedulerName="nhd-scheduler", guaranteed=False,
            )  # fmt: skip

    # --- nodes, time, restarts ---

    @rule(name=st.sampled_from(NODES))
    def a_node_goes_or_comes_back(self, name: str) -> None:
        if ("nodes", name) in self.rack.objects:
            self.rack.delete("nodes", name)
        else:
            self.rack.server(name, INVENTORY, labels=NHDS)

    @rule(name=st.sampled_from(NODES), gpus=st.booleans())
    def devices_go_or_come_back(self, name: str, gpus: bool) -> None:
        if ("nodes", name) in self.rack.objects:
            self.rack.inventories[name] = INVENTORY if gpus else replace(INVENTORY, gpus=())
            self.rack.report(name)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.rack.pass_time(seconds)

    @rule(order=st.permutations(["nodes", "pods", "reports"]), late=st.booleans())
    def the_scheduler_restarts(self, order: list[str], late: bool) -> None:
        """What was being bound comes through before the next one begins, or never."""
        old, self.rack = self.rack, self.a_scheduler()
        if late:
            for effect in old.binds:
                if ("pods", effect.pod.uid) in old.objects:
                    old.bind(effect, answer=False)
        self.rack.objects, self.rack.version = old.objects, old.version
        self.rack.inventories, self.rack.kubelets = old.inventories, old.kubelets
        self.rack.handle(messages.Leading(active=False))
        for collection in order:
            for (kind, _), obj in list(self.rack.objects.items()):
                if kind == collection:
                    self.rack.handle(messages.Seen(collection, obj))
        self.rack.handle(messages.Leading(active=True))

    # --- what must hold ---

    def books(self) -> Books:
        plugins = self.rack.machine.cycle.profile.plugins
        return next(p.books for p in plugins if isinstance(p, ProcessingGroups))

    def by_the_api(self, name: str) -> Any:
        """What the bound pods' annotations say."""
        cluster = self.rack.machine.cluster
        views = [cluster.pods[uid] for uid in self.rack.bound() if self.rack.where(uid) == name]
        holders = [self.books().holder(view, NHDS) for view in views]
        return held_by(holders, self.rack.inventories[name])

    @invariant()
    def what_is_held_is_what_the_api_says(self) -> None:
        rack, books = self.rack, self.books()
        for name in NODES:
            if ("nodes", name) not in rack.objects:
                continue
            known = books.on(rack.machine.cluster.entry(name))
            assert known is not None
            told = dict(self.by_the_api(name).allocations)
            for bind in rack.binds:
                if bind.node == name and bind.pod.uid in rack.machine.cluster.assumed:
                    text = bind.annotations["topology.rte.dev/allocation"]
                    told[bind.pod.uid] = parse_record(text).allocation
            assert known.held.allocations == told
            assert known.ground.used == holdings.used_by(told)
            assert list(holdings.conflicts(told)) == []
            assert not known.held.unreadable

    @invariant()
    def nothing_is_kept_of_what_is_gone(self) -> None:
        cluster = self.rack.machine.cluster
        assert cluster._written.keys() == cluster.assumed.keys()
        settling = next(
            p._settling
            for p in self.rack.machine.cycle.profile.plugins
            if isinstance(p, GroupsNode)
        )
        assert all(settling._until.values())

    def teardown(self) -> None:
        """When all is quiet nobody waits for a place that is there."""
        rack = self.rack
        rack.answers = True
        while rack.binds:
            rack.bind(rack.binds.pop(0))
        rack.pass_time(60.0)
        if not any(kind == "nodes" for kind, _ in rack.objects):
            return
        cluster = rack.machine.cluster
        for pod in list(cluster.pods.values()):
            if rack.machine.is_ours(pod):
                assert rack.machine.cycle.decide(pod).node is None
        self.what_is_held_is_what_the_api_says()


TestLifetime = Lifetime.TestCase
TestLifetime.settings = settings(max_examples=scaled(60), stateful_step_count=30, deadline=None)
