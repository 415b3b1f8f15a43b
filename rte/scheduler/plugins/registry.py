"""All plugins in the order in which they are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import extensions
from rte.placement.groups.policies import Policies
from rte.scheduler.framework.profile import Profile, Scoring
from rte.scheduler.plugins import declared
from rte.scheduler.plugins.dynamic_resources import DynamicResources
from rte.scheduler.plugins.gang_scheduling import GangScheduling
from rte.scheduler.plugins.groups.books import Books
from rte.scheduler.plugins.groups.rules import GroupsNode, GroupsWellFormed, ProcessingGroups
from rte.scheduler.plugins.image_locality import ImageLocality
from rte.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from rte.scheduler.plugins.node_affinity import RequiredNodes
from rte.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from rte.scheduler.plugins.node_pool import NodePool
from rte.scheduler.plugins.node_ports import NodePorts
from rte.scheduler.plugins.node_resource_topology import NodeResourceTopology
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit
from rte.scheduler.plugins.node_unschedulable import NodeUnschedulable
from rte.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from rte.scheduler.plugins.pod_topology_spread import PodTopologySpread
from rte.scheduler.plugins.scoring_strategy import ScoringStrategy
from rte.scheduler.plugins.shared_pool import SharedPool
from rte.scheduler.plugins.taint_toleration import TaintToleration
from rte.scheduler.plugins.volume_binding import VolumeBinding
from rte.scheduler.plugins.volume_restrictions import VolumeRestrictions
from rte.scheduler.plugins.zone_room import ZoneRoom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.k8s.selectors import NodeTerm
    from rte.scheduler.framework.claims.devices import Devices
    from rte.scheduler.framework.claims.storage import Storage
    from rte.scheduler.framework.plugin import Plugin

#: Preferences that a profile can weigh.
WEIGHED = tuple(
    each.name
    for each in (
        DynamicResources,
        ImageLocality,
        InterPodAffinity,
        RequiredNodes,
        PodTopologySpread,
        ScoringStrategy,
        TaintToleration,
        ZoneRoom,
    )
)


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What can be set for the rules; see :class:`rte.scheduler.settings.SchedulerSettings`."""

    shared_limit: float = 0.0
    resource_status: bool = False
    device_share: bool = False
    policies: Policies = field(default_factory=Policies)
    pool: NodeTerm | None = None
    scoring: Mapping[str, Scoring] = field(default_factory=dict)

    @property
    def reads_images(self) -> bool:
        """Whether some profile weighs the images of nodes."""
        return any(each.weights.get(ImageLocality.name) for each in self.scoring.values())


def profile(
    storage: Storage, devices: Devices, zone_room: ZoneRoom, options: RuleOptions
) -> Profile:
    """The plugins of the scheduler.

    Args:
        storage: what volume rules read and promise from.
        devices: what DynamicResources reads and promises from.
        zone_room: remembers what was placed lately.
        options: which optional rules are in force.
    """
    optional: list[Plugin] = []
    if options.shared_limit:
        optional.append(SharedPool(options.shared_limit))
    if options.resource_status:
        optional.append(extensions.load(extensions.PLUGINS, "Koordinator")())
    if options.device_share:
        optional.append(extensions.load(extensions.PLUGINS, "DeviceShare")())
    strategies = {name: each.strategy for name, each in options.scoring.items() if each.strategy}
    strategy = ScoringStrategy(strategies)
    zone_room.instead = strategy if strategies else None
    dialects = extensions.registered(extensions.DIALECTS).values()
    books = Books(options.policies, [each.load() for each in dialects])
    return Profile(
        [
            GroupsWellFormed(books),
            *([] if options.pool is None else [NodePool(options.pool)]),
            NodeUnschedulable(),
            RequiredNodes(),
            TaintToleration(),
            NodeDeclaredFeatures(),
            GroupsNode(books),
            NodeResourcesFit(),
            NodePorts(),
            VolumeRestrictions(),
            NodeResourceTopology(),
            ProcessingGroups(books),
            *optional,
            InterPodAffinity(),
            PodTopologySpread(),
            VolumeBinding(storage),
            NodeVolumeLimits(),
            DynamicResources(devices),
            GangScheduling(),
            zone_room,
            strategy,
            ImageLocality(),
            declared.PrioritySort(),
            declared.SchedulingGates(),
            declared.DefaultBinder(),
            declared.DefaultPreemption(),
            declared.DrainReservation(),
            declared.KubeletOnly(),
        ],
        options.scoring,
    )
