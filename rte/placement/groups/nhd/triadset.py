"""NHD's TriadSet as a StatefulSet whose pods have the same names in DNS.

NHD calls a set's pods ``<serviceName>-<n>`` and puts them into the subdomain of the set's own name;
a StatefulSet calls them ``<name>-<n>`` and puts them into that of its ``serviceName``. So the two
names change places. Source: NHD ``TriadController.py``.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.placement.groups.nhd import triad
from rte.placement.groups.request import ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Mapping

NHD_SCHEDULER = "nhd-scheduler"
#: Of ``render`` in a request: NHD's file, which the bind fills in.
FIELD = "triad"
GROUPS = "sigproc.viasat.io/nhd_groups"
#: What NHD wrote into pods; it means nothing to a new one.
_WRITTEN = "sigproc.viasat.io/"


def convert(
    triad_set: Mapping[str, Any],
    config_maps: Mapping[str, Mapping[str, str]],
    scheduler_name: str,
    *,
    nhd_config: bool = False,
) -> dict[str, Any]:
    """The StatefulSet of a TriadSet.

    Args:
        triad_set: the object.
        config_maps: name -> data, of the set's namespace; with the one that its pods mount, the
            request is written into the template.
        scheduler_name: who places the pods from now on.
        nhd_config: the bind fills the file in, and the pods find it in NHD's annotation.

    Raises:
        errors.ParseError: the object lacks what its CRD requires.
        RequestError: the configuration file has a fault.
    """
    metadata, spec = triad_set.get("metadata") or {}, triad_set.get("spec") or {}
    for key in ("selector", "template", "serviceName"):
        if not spec.get(key):
            raise errors.ParseError("TriadSet", metadata.get("name", ""), f"has no spec.{key}")
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": spec["serviceName"],
            **{key: metadata[key] for key in ("namespace", "labels") if metadata.get(key)},
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": spec["selector"],
            "serviceName": metadata.get("name", ""),
            # NHD starts all missing pods at once.
            "podManagementPolicy": "Parallel",
            "template": _template(
                spec["template"], config_maps, scheduler_name, nhd_config=nhd_config
            ),
        },
    }


def _template(
    told: Mapping[str, Any],
    config_maps: Mapping[str, Mapping[str, str]],
    scheduler_name: str,
    *,
    nhd_config: bool,
) -> dict[str, Any]:
    template = copy.deepcopy(dict(told))
    metadata = template.setdefault("metadata", {})
    annotations = dict(metadata.get("annotations") or {})
    groups = annotations.get(GROUPS, "")
    kept = {key: value for key, value in annotations.items() if not key.startswith(_WRITTEN)}
    text = _config_file(template.get("spec") or {}, config_maps)
    if text is not None:
        document = dict(triad.read(text).document)
        names = sorted({name.strip() for name in groups.split(",") if name.strip()})
        if names:
            document["nodeGroups"] = names
        if nhd_config:
            document["render"] = {FIELD: text}
        kept[ANNOTATION] = json.dumps(document)
    metadata["annotations"] = kept
    spec = template.setdefault("spec", {})
    if spec.get("schedulerName") == NHD_SCHEDULER:
        spec["schedulerName"] = scheduler_name
    return template


def _config_file(
    spec: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> str | None:
    """The first item of the first ConfigMap that the pods mount: NHD's configuration file."""
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            data = config_maps.get((volume["configMap"] or {}).get("name", ""))
            return next(iter(data.values()), None) if data else None
    return None
