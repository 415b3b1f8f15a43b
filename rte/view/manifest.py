"""What a what-if asks about: pods of a manifest, within bounds, with fields that Kubernetes has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import workload
from rte.reader import jsontext, yamltext
from rte.reader.json import as_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rte.reader.json import Json, JsonObject

#: Pods of one question.
MOST_PODS = 200

#: Fields of core/v1 Container and ResourceRequirements (k8s.io/api v0.37.1, core/v1/types.go).
CONTAINER = frozenset({
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle",
    "livenessProbe", "name", "ports", "readinessProbe", "resizePolicy", "resources",
    "restartPolicy", "restartPolicyRules", "securityContext", "startupProbe", "stdin",
    "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
    "volumeMounts", "workingDir",
})  # fmt: skip
RESOURCES = frozenset({"limits", "requests", "claims"})
#: Resources whose names have no domain (IsStandardContainerResourceName in pkg/apis/core/helper).
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def read_pods(text: bytes, spec_fields: Collection[str]) -> list[JsonObject]:
    """The pods, those of workloads included, none of them on a node.

    Args:
        text: YAML or JSON.
        spec_fields: names that a PodSpec has.

    Raises:
        errors.ParseError: the text is no manifest of pods, or names what Kubernetes does not have:
            a misspelt field would be left out, and anything fits that asks for nothing.
    """
    found = yamltext.load_all(text, "manifest", jsontext.ANNOTATION, aliases=False)
    documents = [each for each in found if each is not None]
    out: list[JsonObject] = []
    for document in documents:
        if not isinstance(document, dict):
            raise errors.ParseError("manifest", document, "expected Kubernetes objects")
        is_workload = workload.is_workload(document)
        out += workload.pods_of(document, MOST_PODS) if is_workload else [document]
    if not out:
        raise errors.ParseError("manifest", text, "there is no pod in it")
    if len(out) > MOST_PODS:
        raise errors.ParseError("manifest", len(out), f"{MOST_PODS} pods at most")
    # A workload stands for what its pods are, written out.
    jsontext.ANNOTATION.check(out, "manifest")
    for number, pod in enumerate(out):
        metadata = pod.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise errors.ParseError("metadata", metadata, "expected an object")
        metadata.setdefault("name", "pod")
        # None of the cluster's: the question is about pods that are not there.
        metadata["uid"] = f"what-if-{number}"
        if not isinstance(pod.get("spec"), dict):
            raise errors.ParseError("spec", pod.get("spec"), "expected an object")
        pod["spec"].pop("nodeName", None)
        for field in _unknown(pod["spec"], spec_fields):
            raise errors.ParseError("manifest", field, "Kubernetes has no such field or resource")
    return out


def _unknown(spec: Json, spec_fields: Collection[str]) -> Iterator[str]:
    """Where a spec names what there is not."""
    yield from (f"spec.{name}" for name in spec if name not in spec_fields)
    yield from _unknown_amounts(as_object(spec.get("resources")), "spec.resources")
    for kind in ("containers", "initContainers"):
        listed = spec.get(kind)
        for place, container in enumerate(listed if isinstance(listed, list) else ()):
            where = f"spec.{kind}[{place}]"
            known = as_object(container)
            yield from (f"{where}.{name}" for name in known if name not in CONTAINER)
            yield from _unknown_amounts(as_object(known.get("resources")), f"{where}.resources")


def _unknown_amounts(resources: Json, where: str) -> Iterator[str]:
    yield from (f"{where}.{name}" for name in resources if name not in RESOURCES)
    for kind in ("limits", "requests"):
        for name in as_object(resources.get(kind)):
            if not ("/" in name or name in _STANDARD or name.startswith("hugepages-")):
                yield f"{where}.{kind}.{name}"
