"""From objects of the API to the cluster: one entry for each collection that is watched (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors, extensions
from rte.placement.dra import decode
from rte.scheduler.cache import gangs
from rte.scheduler.framework import node, objects
from rte.scheduler.framework.claims import devices, storage
from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.framework.objects import ObjectReference
from rte.telemetry.malformed import MalformedObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.telemetry.effects import Measured, Said

#: An agent that has not renewed its Lease for so long is taken for dead.
AGENT_DEAD_S = 40.0

#: How items are told apart: by UID, by ``namespace/name``, else by name.
_BY_UID = frozenset({"pods"})
_BY_PATH = frozenset(
    {
        "budgets",
        "claims",
        "capacities",
        "claim-templates",
        "device-claims",
        "kueue-workloads",
        *gangs.COLLECTIONS,
    }
)


def key_of(collection: str, metadata: Mapping[str, Any]) -> str:
    """What identifies an item of a collection."""
    if collection in _BY_UID:
        return str(metadata.get("uid") or "")
    if collection in _BY_PATH:
        return f"{metadata.get('namespace')}/{metadata.get('name')}"
    return str(metadata.get("name") or "")


@dataclass(kw_only=True)
class IntakeResult:
    """What became of one thing that was told.

    Attributes:
        pods: (view before, view now or None when it is gone) of each pod that it was about.
        report: name of the node whose report it was.
        unread: name of a node whose report was passed over, and is needed now.
        malformed: (name, what is wrong) of what could not be read.
        told: what is new about what can be read, for operators.
        author: whose object it is that could not be read, where that is told by nothing else.
    """

    pods: list[tuple[PodView | None, PodView | None]] = field(default_factory=list)
    report: str = ""
    unread: str = ""
    malformed: tuple[str, str] = ("", "")
    told: list[Measured | Said] = field(default_factory=list)
    author: ObjectReference | None = None


class Intake:
    """Tells the cluster what watches tell.

    Attributes:
        pods_seen: resourceVersion up to which every change of a pod is known.
        instead: what is taken in for a pod.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reports: dict[str, str] = {}
        #: Nodes of other pools that have a report.
        self._passed_over: set[str] = set()
        self._leases: dict[str, tuple[str, float]] = {}
        self._known: dict[str, set[str]] = {}
        self._malformed = MalformedObjects()
        self.pods_seen = 0
        self.instead: Callable[[PodView], PodView] = lambda view: view
        self._set: dict[str, Callable[[Mapping[str, Any], float], None]] = {
            "budgets": self._set_budget,
            "capacities": self._set_capacity,
            "claims": self._set_claim,
            "koordinator-devices": self._set_koordinator_devices,
            "device-claims": self._set_device_claim,
            "device-classes": self._set_device_class,
            "device-taint-rules": self._set_taint_rule,
            "slices": self._set_slice,
            "classes": self._set_class,
            "drivers": self._set_driver,
            "limits": self._set_limits,
            "namespaces": self._set_namespace,
            "volumes": self._set_volume,
        }
        self._gone: dict[str, Callable[[str], None]] = {
            "budgets": lambda key: cluster.set_budget(key, None),
            "koordinator-devices": self._forget_koordinator_devices,
            "namespaces": lambda key: cluster.set_namespace(key, None),
            "nodes": cluster.remove_node,
        }

    def seen(
        self, collection: str, obj: Mapping[str, Any], now: float, *, age_s: float = 0.0
    ) -> IntakeResult:
        """An object as the API shows it.

        ``age_s``: seconds by the wall clock since a Lease was renewed, by its own word.
        """
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if collection != "pods":
            self._known.setdefault(collection, set()).add(key_of(collection, metadata))
        taken = IntakeResult()
        key = key_of(collection, metadata)
        try:
            match collection:
                case "pods":
                    version = objects.version_of(metadata)
                    self.pods_seen = max(self.pods_seen, version)
                    if self._is_known(metadata, version):
                        return taken
                    self._set_pod(obj, now, taken)
                case "reports" if self._is_read(metadata):
                    return taken
                case "reports":
                    self._set_report(obj, now, taken)
                case "nodes":
                    self._set_node(obj, now, taken)
                case "leases":
                    self._set_lease(obj, now, age_s)
                case _ if collection in gangs.COLLECTIONS:
                    self._cluster.gangs.declare(collection, obj)
                case _:
                    self._set[collection](obj, now)
        except errors.RteError as error:
            parts = (metadata.get("namespace"), metadata.get("name"))
            taken.malformed = ("/".join(str(part) for part in parts if part), str(error))
            taken.author = self._author(collection, key, metadata, taken)
        name, why = taken.malformed
        taken.told = self._malformed.note(collection, key, why, name)
        return taken

    def _author(
        self, collection: str, key: str, metadata: Mapping[str, Any], taken: IntakeResult
    ) -> ObjectReference | None:
        name = str(metadata.get("name") or "")
        if collection == "pods" and not taken.pods:  # one that waits says why
            namespace = str(metadata.get("namespace") or "default")
            return ObjectReference(kind="Pod", name=name, namespace=namespace, uid=key)
        if collection == "reports" and name in self._cluster.nodes:
            info = self._cluster.nodes[name].info
            return ObjectReference(kind="Node", name=name, uid=info.uid if info else "")
        return None

    def gone(self, collection: str, key: str, now: float) -> IntakeResult:
        """An object is not there any more."""
        taken = IntakeResult(told=self._malformed.note(collection, key))
        cluster = self._cluster
        self._known.get(collection, set()).discard(key)
        match collection:
            case "pods":
                before = cluster.pods.get(key)
                cluster.remove_pod(key, now)
                cluster.gangs.gone(key)
                if before is not None:
                    taken.pods.append((before, None))
            case _ if collection in self._gone:
                self._gone[collection](key)
            case "leases":
                # An exporter without a Lease is trusted as it is.
                self._leases.pop(key, None)
                cluster.set_alive(key, alive=None)
            case "reports":
                self._reports.pop(key, None)
                self._passed_over.discard(key)
                if key in cluster.nodes:
                    cluster.set_report(key, None, now)
                taken.report = key
            case "slices" | "device-taint-rules" | "device-classes" | "device-claims":
                self._forget_devices(collection, key)
            case _ if collection in gangs.COLLECTIONS:
                cluster.gangs.withdraw(collection, key)
            case _:
                self._forget_storage(collection, key)
        return taken

    def listed(self, collection: str, found: Collection[str], version: int) -> list[str]:
        """A list has ended: keys of what was known before and is :meth:`gone` by it."""
        if collection == "pods":
            self.pods_seen = max(self.pods_seen, version)
            lost = [
                uid
                for uid, pod in self._cluster.pods.items()
                if uid not in found and pod.version <= version
            ]
            known = self._cluster.gangs.terminal.keys() | self._malformed.keys("pods")
            lost += [uid for uid in known - self._cluster.pods.keys() if uid not in found]
        else:
            lost = list(self._known.get(collection, set()) - set(found))
        return lost

    def restored(self, collection: str) -> None:
        """Versions begin anew: what the API shows next is newer than all that was told before."""
        if collection == "reports":
            self._reports.clear()
        elif collection == "pods":
            self.pods_seen = 0
            self._cluster.forget_versions()

    def judge_leases(self, now: float) -> None:
        """Look for agents that have fallen silent; to be called each second."""
        for name in self._leases:
            self._judge(name, now)

    # --- pods, nodes, reports --------------------------------------------------------------------

    def _is_known(self, metadata: Mapping[str, Any], version: int) -> bool:
        known = self._cluster.pods.get(str(metadata.get("uid") or ""))
        return known is not None and 0 < version == known.version

    def _is_read(self, metadata: Mapping[str, Any]) -> bool:
        version = str(metadata.get("resourceVersion") or "")
        return bool(version) and self._reports.get(str(metadata.get("name") or "")) == version

    def _set_pod(self, obj: Mapping[str, Any], now: float, taken: IntakeResult) -> None:
        shapes = self._cluster.shapes
        try:
            view = objects.read_pod(obj, shapes)
        except errors.ParseError as error:
            # Where a malformed pod waits, it does so with that reason.
            substitute = objects.stand_in(obj, str(error), shapes)
            if substitute is not None:
                self._set_view(substitute, now, taken)
            raise
        self._set_view(self.instead(view), now, taken)

    def _set_view(self, view: PodView, now: float, taken: IntakeResult) -> None:
        before = self._cluster.pods.get(view.uid)
        if self._cluster.set_pod(view, now):
            taken.pods.append((before, view))

    def _set_node(self, obj: Mapping[str, Any], now: float, taken: IntakeResult) -> None:
        try:
            info = objects.read_node(obj, images=self._cluster.shapes.images)
        except errors.ParseError:
            self._cluster.remove_node(key_of("nodes", obj.get("metadata") or {}))
            raise
        self._cluster.set_node(info)
        if self._cluster.is_outside(info):
            if self._reports.pop(info.name, None) is not None:
                self._cluster.set_report(info.name, None, now)
                self._passed_over.add(info.name)
        elif info.name in self._passed_over:
            self._passed_over.discard(info.name)
            taken.unread = info.name

    def _set_report(self, obj: Mapping[str, Any], now: float, taken: IntakeResult) -> None:
        metadata = obj.get("metadata") or {}
        name, version = str(metadata.get("name") or ""), str(metadata.get("resourceVersion") or "")
        known = self._cluster.nodes.get(name)
        if known is not None and self._cluster.is_outside(known.info):
            self._passed_over.add(name)
            return
        self._reports[name] = version
        report = node.read_report(obj, known.report if known else None)
        self._cluster.set_report(name, report, now)
        taken.report = name
        if report.broken or report.problem:
            raise errors.ParseError("NodeResourceTopology", name, report.broken or report.problem)

    def _set_namespace(self, obj: Mapping[str, Any], _now: float) -> None:
        metadata = obj.get("metadata") or {}
        self._cluster.set_namespace(
            str(metadata.get("name") or ""), dict(metadata.get("labels") or {})
        )

    def _set_budget(self, obj: Mapping[str, Any], _now: float) -> None:
        key = key_of("budgets", obj.get("metadata") or {})
        self._cluster.set_budget(key, objects.read_budget(obj))

    def _forget_koordinator_devices(self, name: str) -> None:
        if name in self._cluster.nodes:
            self._cluster.set_koordinator_devices(name, None)

    def _set_koordinator_devices(self, obj: Mapping[str, Any], now: float) -> None:
        name = key_of("koordinator-devices", obj.get("metadata") or {})
        try:
            extensions.load(extensions.PLUGINS, "DeviceShare").check(obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.gone("koordinator-devices", name, now)
            raise errors.ParseError("Device", name, f"malformed: {error}") from None
        self._cluster.set_koordinator_devices(name, obj)

    # --- storage ---------------------------------------------------------------------------------

    def _set_claim(self, obj: Mapping[str, Any], _now: float) -> None:
        claim = storage.read_claim(obj)
        self._cluster.storage.claims[claim.key] = claim
        self._storage_changed("claims", claim.key)

    def _set_volume(self, obj: Mapping[str, Any], _now: float) -> None:
        volume = storage.read_volume(obj)
        self._change_volume(volume.name, volume)

    def _change_volume(self, name: str, volume: storage.PersistentVolume | None) -> None:
        known = self._cluster.storage
        before = known.volumes.get(name)
        known.set_volume(name, volume)
        claims = {claim.key for claim in known.claims.values() if claim.volume == name}
        claims.update(each.claim for each in (before, volume) if each is not None and each.claim)
        if claims:
            self._cluster.told(ClusterEvent(Kind.VOLUME, name=name, claims=frozenset(claims)))
        if volume is not None and not volume.claim:
            # It is for anybody.
            self._cluster.told(ClusterEvent(Kind.VOLUME, name=name))

    def _set_class(self, obj: Mapping[str, Any], _now: float) -> None:
        kind = storage.read_class(obj)
        self._cluster.storage.classes[kind.name] = kind
        self._storage_changed("classes", kind.name)

    def _set_driver(self, obj: Mapping[str, Any], _now: float) -> None:
        name = key_of("drivers", obj.get("metadata") or {})
        tracked = self._cluster.storage.tracked
        (tracked.add if storage.publishes_capacity(obj) else tracked.discard)(name)
        self._storage_changed("drivers", name)

    def _set_capacity(self, obj: Mapping[str, Any], _now: float) -> None:
        key = key_of("capacities", obj.get("metadata") or {})
        self._cluster.storage.capacities[key] = storage.read_capacity(obj)
        self._storage_changed("capacities", key)

    def _set_limits(self, obj: Mapping[str, Any], _now: float) -> None:
        name = key_of("limits", obj.get("metadata") or {})
        self._cluster.storage.csi_nodes[name] = storage.read_csi_node(obj)
        self._storage_changed("limits", name)

    def _forget_storage(self, collection: str, key: str) -> None:
        known = self._cluster.storage
        if collection == "drivers":
            known.tracked.discard(key)
        elif collection == "volumes":
            self._change_volume(key, None)
            return
        else:
            tables: dict[str, dict[str, Any]] = {
                "capacities": known.capacities,
                "claims": known.claims,
                "classes": known.classes,
                "limits": known.csi_nodes,
            }
            tables[collection].pop(key, None)
        self._storage_changed(collection, key)

    def _storage_changed(self, collection: str, key: str) -> None:
        """Such an object was added, changed, or is gone: tell whom it concerns."""
        match collection:
            case "claims":
                event = ClusterEvent(Kind.CLAIM, claims=frozenset((key,)))
            case "limits":
                event = ClusterEvent(Kind.CSI_NODE, key)
            case _:
                event = ClusterEvent(Kind.STORAGE_CLASS)
        self._cluster.told(event)

    # --- devices of DRA --------------------------------------------------------------------------

    def _set_slice(self, obj: Mapping[str, Any], _now: float) -> None:
        fleet = self._cluster.devices.fleet
        self._supply_changed()
        try:
            fleet.put_slice(decode.resource_slice(obj))
        except errors.ParseError:
            fleet.remove_slice(key_of("slices", obj.get("metadata") or {}))
            raise

    def _set_taint_rule(self, obj: Mapping[str, Any], _now: float) -> None:
        self._cluster.devices.fleet.put_rule(decode.device_taint_rule(obj))
        self._supply_changed()

    def _set_device_class(self, obj: Mapping[str, Any], _now: float) -> None:
        name = key_of("device-classes", obj.get("metadata") or {})
        try:
            self._cluster.set_device_class(name, decode.device_class(obj))
        except errors.ParseError:
            self._cluster.set_device_class(name, None)
            raise

    def _set_device_claim(self, obj: Mapping[str, Any], _now: float) -> None:
        # What a malformed claim held when it was last read counts on.
        known, claim = self._cluster.devices, devices.read_claim(obj)
        freed = known.freed
        if known.set_claim(claim):
            self._device_claim_changed(claim.key, freed=known.freed > freed)

    def _forget_devices(self, collection: str, key: str) -> None:
        known = self._cluster.devices
        match collection:
            case "slices":
                known.fleet.remove_slice(key)
                self._supply_changed()
            case "device-taint-rules":
                known.fleet.remove_rule(key)
                self._supply_changed()
            case "device-classes":
                self._cluster.set_device_class(key, None)
            case "device-claims":
                freed = known.freed
                known.remove_claim(key)
                self._device_claim_changed(key, freed=known.freed > freed)

    def _supply_changed(self) -> None:
        self._cluster.told(ClusterEvent(Kind.DEVICE_SUPPLY))

    def _device_claim_changed(self, key: str, *, freed: bool) -> None:
        kind = Kind.DEVICE_SUPPLY if freed else Kind.DEVICE_CLAIM
        self._cluster.told(ClusterEvent(kind, claims=frozenset((key,))))

    # --- the agents' Leases ----------------------------------------------------------------------

    def _set_lease(self, obj: Mapping[str, Any], now: float, age_s: float) -> None:
        """A Lease was renewed; it is named like its node.

        What a Lease says of time is only believed when it is seen first: later, it is the change
        that counts, by our own clock.
        """
        name = str((obj.get("metadata") or {}).get("name") or "")
        spec = obj.get("spec") or {}
        renewed = str(spec.get("renewTime") or "")
        before = self._leases.get(name)
        if not spec.get("holderIdentity"):
            self._leases[name] = (renewed, now - 2 * AGENT_DEAD_S)
        elif before is None:
            self._leases[name] = (renewed, now - age_s)
        elif before[0] != renewed:
            self._leases[name] = (renewed, now)
        self._judge(name, now)

    def _judge(self, name: str, now: float) -> None:
        self._cluster.set_alive(name, alive=now - self._leases[name][1] < AGENT_DEAD_S)
