"""Pods from what people have at hand: a manifest, its file, or a pod of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import podspec
from rte.model.pod import Pod

if TYPE_CHECKING:
    from typing import TypeAlias

    from rte.reader.json import Json, JsonObject

    PodLike: TypeAlias = Pod | Json | str | Path


class Pods(Pod):
    """A pod as the kubelet's admission sees it."""

    @staticmethod
    def from_manifest(manifest: Json) -> Pod:
        """Read a Pod, from the API or from YAML, with the API server's defaults for resources.

        A pod that no server has stored has no UID; it gets ``namespace/name`` for one.

        Raises:
            errors.ParseError: it is not a Pod, or a field of it is malformed.
        """
        if not isinstance(manifest, dict) or manifest.get("kind", "Pod") != "Pod":
            raise errors.ParseError("Pod", manifest, "expected an object of kind Pod")
        read = podspec.parse_pod(manifest)
        if not read.containers:
            raise errors.ParseError("Pod", read.name, "spec.containers: Required value")
        return read if read.uid else replace(read, uid=f"{read.namespace}/{read.name}")


def pod(pod: PodLike) -> Pod:
    """A pod, ready to be asked about.

    Args:
        pod: a manifest or an object of the API as a dict; the path of a YAML file that holds one
            pod (or a workload of one); or a pod that was read before.

    Raises:
        errors.UsageError: it is none of these, or the API server would refuse it; the message names
            the field.
    """
    if isinstance(pod, Pod):
        return pod
    if isinstance(pod, str | Path):
        return Pods.from_manifest(_only(Path(pod)))
    _expect(pod)
    stored = isinstance(pod.get("metadata"), Mapping) and pod["metadata"].get("uid")
    try:
        return Pods.from_manifest(dict(pod) if stored else _checked(dict(pod)))
    except errors.ParseError as error:
        raise errors.UsageError(f"pod: {error}") from None


def _expect(given: object) -> None:
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise errors.UsageError(
            f"pod: expected a dict, the path of a YAML file or a Pod, not {kind}"
        )


def _checked(manifest: JsonObject) -> JsonObject:
    from rte.library import manifests  # here: it brings the API's schema with it

    return manifests.checked(manifest, "pod")


def _only(path: Path) -> JsonObject:
    from rte.library import manifests

    try:
        found = manifests.read(path)
    except errors.UsageError as error:
        raise errors.UsageError(f"pod: {error}") from None
    if len(found) > 1:
        raise errors.UsageError(f"pod: {path} holds {len(found)} pods: give one")
    return found[0]
