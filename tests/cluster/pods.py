"""Pod objects for tests."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.api import Object

_numbers = itertools.count()


def container(
    cpu: str | int | None = None,
    memory: str | None = None,
    *,
    name: str = "",
    limits: Mapping[str, Any] | None = None,
    command: Sequence[str] = (),
    sidecar: bool = False,
    **resources: str | int,
) -> Object:
    """A container; requests equal limits (Guaranteed) unless ``limits`` says otherwise.

    ``resources`` are further ones with ``_`` for ``-`` (``hugepages_2Mi="64Mi"``); give devices in
    ``limits``-style mappings by ``**{"example.com/gpu": 1}``. An empty request is BestEffort.
    """
    requests = {"cpu": cpu, "memory": memory}
    requests |= {key.replace("_", "-"): value for key, value in resources.items()}
    wanted = {key: str(value) for key, value in requests.items() if value is not None}
    bounds = wanted if limits is None else {key: str(value) for key, value in limits.items()}
    made: Object = {
        "name": name,
        "image": "pause:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": wanted, "limits": dict(bounds)},
    }
    if command:
        made["command"] = list(command)
    if sidecar:
        made["restartPolicy"] = "Always"
    return made


def pod(
    *containers: Object,
    init: Sequence[Object] = (),
    node: str | None = None,
    name: str = "",
    scheduler: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod that ends at once when deleted. With ``node`` it meets that kubelet directly.

    Without containers it has a single one that asks for nothing. ``spec`` are further fields of
    the pod's spec by their own names.
    """
    main = [dict(item) for item in containers] or [container()]
    before = [dict(item) for item in init]
    for stem, group in (("c", main), ("i", before)):
        for number, item in enumerate(group):
            item["name"] = item["name"] or f"{stem}{number}"
    body: Object = {
        "containers": main,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }
    if before:
        body["initContainers"] = before
    if node:
        # A pod that is created on a node gets no grace from taints that the scheduler would honour.
        body |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    if scheduler:
        body["schedulerName"] = scheduler
    metadata: Object = {"name": name or f"p{next(_numbers)}"}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**body, **spec}}


def path(obj: Object) -> str:
    """The API path of a pod."""
    metadata = obj["metadata"]
    return f"/api/v1/namespaces/{metadata.get('namespace', 'default')}/pods/{metadata['name']}"


def collection(obj: Object) -> str:
    """The API path of the collection that a pod belongs to."""
    return path(obj).rpartition("/")[0]
