"""In-tree volumes at the CSI drivers that serve them now (``k8s.io/csi-translation-lib``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rte.k8s.selectors import NodeTerm, Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.reader.json import Json

#: Annotation of a CSINode: plugins that its kubelet has migrated.
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

_ZONE, _BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_BETA_REGION = "failure-domain.beta.kubernetes.io/region"
_UNSPECIFIED = "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class _Plugin:
    """An in-tree plugin: its driver, the field that names a volume, the driver's zone label."""

    name: str
    driver: str
    handle: str
    zone: str = ""


_PLUGINS = {
    "awsElasticBlockStore": _Plugin(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID", "topology.ebs.csi.aws.com/zone"
    ),
    "gcePersistentDisk": _Plugin(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName", "topology.gke.io/zone"
    ),
    "azureDisk": _Plugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    "cinder": _Plugin(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "volumeID",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "portworxVolume": _Plugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID"),
}

#: Fields of volumes that such plugins serve.
IN_TREE = tuple(_PLUGINS)

#: Provisioner of a StorageClass -> the driver that provisions for it.
DRIVERS = {plugin.name: plugin.driver for plugin in _PLUGINS.values()}


class Attached(NamedTuple):
    """A volume as its driver knows it."""

    driver: str
    handle: str


def attached(source: Json, labels: Mapping[str, str] | None = None) -> Attached | None:
    """The volume of a pod's or a PersistentVolume's source; None: no driver counts it.

    ``labels``: of the PersistentVolume; None: inline volumes of CSI drivers are not counted.
    """
    made = source.get("csi")
    if made is not None and labels is not None:
        return Attached(str(made.get("driver") or ""), str(made.get("volumeHandle") or ""))
    for kind, plugin in _PLUGINS.items():
        given = source.get(kind)
        if given is not None:
            handle = _handle(kind, plugin, given, labels or {})
            return Attached(plugin.driver, handle) if handle else None
    return None


def _handle(kind: str, plugin: _Plugin, given: Json, labels: Mapping[str, str]) -> str:
    handle = str(given.get(plugin.handle) or "")
    if kind == "awsElasticBlockStore" and handle.startswith("aws://"):
        return handle.removeprefix("aws://").partition("/")[2].strip("/")
    if kind == "azureDisk" and str(given.get("kind") or "managed").lower() != "managed":
        return ""
    if kind == "gcePersistentDisk":
        zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE) or _UNSPECIFIED).split("__")
        if len(zones) > 1:
            region = zones[0].rpartition("-")[0]
            return f"projects/{_UNSPECIFIED}/regions/{region}/disks/{handle}"
        return f"projects/{_UNSPECIFIED}/zones/{zones[0]}/disks/{handle}"
    return handle


def plugin_of(source: Json) -> str:
    """Name of the in-tree plugin of a PersistentVolume's source, empty where it is another's."""
    return next((plugin.name for kind, plugin in _PLUGINS.items() if source.get(kind)), "")


def migrated_terms(
    plugin: str, terms: tuple[NodeTerm, ...] | None, labels: Mapping[str, str]
) -> tuple[NodeTerm, ...] | None:
    """Where the volume is, by the labels of the plugin's driver (translateTopologyFromInTreeToCSI).

    What its node affinity says of zones comes before its labels.
    """
    zone_key = next((each.zone for each in _PLUGINS.values() if each.name == plugin), "")
    if not zone_key:
        return terms
    named = {item.key for term in terms or () for item in term.expressions}
    keys = {_ZONE: zone_key}
    if _ZONE not in named and (
        _BETA_ZONE in named or (_BETA_ZONE in labels and _ZONE not in labels)
    ):
        keys = {_BETA_ZONE: zone_key, _BETA_REGION: _REGION}
    zone = next(iter(keys))
    zones = frozenset(each.strip() for each in labels.get(zone, "").split("__") if each.strip())
    there = (Requirement(zone_key, "In", zones),) if zones and zone not in named else ()
    if terms is None and not there:
        return None
    return tuple(
        replace(
            term,
            expressions=(
                *(replace(item, key=keys.get(item.key, item.key)) for item in term.expressions),
                *there,
            ),
        )
        for term in terms or (NodeTerm((), ()),)
    )
