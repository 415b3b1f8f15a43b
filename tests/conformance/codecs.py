"""Fingerprints and NUMA placement as the scheduler plug-in's own libraries compute them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rte.k8s.podspec import parse_pod
from rte.model.pod import QOS, Pod
from rte.model.quantity import parse_resource
from rte.nrt import attributes, numaplacement
from tests.conformance import consumers


def check_podfingerprint(case: dict[str, Any]) -> list[str]:
    differences = _unknown(case, {"i", "pods", "sign", "checks"})
    signature = attributes.sign((namespace, name) for namespace, name in case["pods"])
    differences += _differ("sign", signature, case["sign"])
    for candidate, want in case["checks"]:
        differences += _differ(candidate, consumers.check(candidate, signature), want)
    return differences


def check_podfingerprint_pods(case: dict[str, Any]) -> list[str]:
    known = {"i", "informerMode", "node", "nrt_resources", "pods", "sign_all", "sign_exclusive"}
    differences = _unknown(case, known)
    nrt_resources = frozenset(case["nrt_resources"] or ())
    pods: list[tuple[str, str]] = []
    exclusive: list[tuple[str, str]] = []
    for entry in case["pods"]:
        differences += _unknown(entry, {"pod", "relevant", "exclusive", "pinned"})
        pod = _raw_pod(entry["pod"])
        pinned = consumers.exclusive_containers(pod, nrt_resources)
        relevant = _is_relevant(entry["pod"], case["informerMode"])
        differences += _differ(f"{pod.name} pinned", pinned, entry["pinned"])
        differences += _differ(f"{pod.name} exclusive", bool(pinned), entry["exclusive"])
        differences += _differ(f"{pod.name} relevant", relevant, entry["relevant"])
        if relevant and entry["pod"]["spec"].get("nodeName") == case["node"]:
            pods.append((pod.namespace, pod.name))
            if pinned:
                exclusive.append((pod.namespace, pod.name))
    differences += _differ("sign_all", attributes.sign(pods), case["sign_all"])
    return differences + _differ(
        "sign_exclusive", attributes.sign(exclusive), case["sign_exclusive"]
    )


def check_numaplacement(case: dict[str, Any]) -> list[str]:
    known = {"i", "nn", "containers", "metadata", "vectors", "encode_err", "decode"}
    differences = _unknown(case, known)
    placements = [((ns, pod, name), zone) for ns, pod, name, zone in case["containers"]]
    try:
        payload = numaplacement.encode(case["nn"], placements)
    except numaplacement.PlacementError as error:
        differences += _differ("encode_err", error.problem, case.get("encode_err"))
    else:
        differences += _differ("encode_err", None, case.get("encode_err"))
        differences += _differ("metadata", payload.metadata(), case["metadata"])
        vectors = {str(zone): text for zone, text in payload.vectors.items()}
        differences += _differ("vectors", vectors, case["vectors"])
    for number, entry in enumerate(case.get("decode", ())):
        differences += _unknown(entry, {"metadata", "vectors", "ids", "want"})
        got = _decode(entry)
        want = entry["want"]
        if "panic" in want:  # upstream crashes; any refusal will do
            differences += [] if "err" in got else [f"decode {number}: {got}, want an error"]
        else:
            differences += _differ(f"decode {number}", got, want)
    return differences


def _decode(entry: dict[str, Any]) -> dict[str, Any]:
    ids = [(namespace, pod, name) for namespace, pod, name in entry["ids"]]
    vectors = {int(zone): text for zone, text in entry["vectors"].items()}
    stage = "metadata"
    try:
        payload = consumers.parse_metadata(entry["metadata"], vectors)
        stage = "validate"
        consumers.validate(payload)
        stage = "result"
        zones = consumers.decode(payload, ids)
    except numaplacement.PlacementError as error:
        return {"err": str(error.problem), "at": stage}
    return {"numa": [zones[container] for container in ids]}


def _is_relevant(obj: dict[str, Any], informer_mode: str) -> bool:
    """Which pods the plug-in takes for running, by its ``informerMode``."""
    phase = obj.get("status", {}).get("phase", "")
    if informer_mode == "Shared":
        return bool(phase == "Running")
    return phase != "Pending" and bool(obj["spec"].get("nodeName"))


def _raw_pod(obj: dict[str, Any]) -> Pod:
    """A recorded pod: without the API server's defaults, so limits are no requests."""
    pod = parse_pod(obj)
    specs = [*obj["spec"].get("initContainers", ()), *obj["spec"].get("containers", ())]
    containers = tuple(
        replace(container, requests=_amounts(spec.get("resources", {}).get("requests")))
        for container, spec in zip(pod.containers, specs, strict=True)
    )
    pod = replace(pod, containers=containers)
    recorded = obj.get("status", {}).get("qosClass")
    return replace(pod, qos=QOS(recorded) if recorded else _raw_qos(pod, obj))


def _raw_qos(pod: Pod, obj: dict[str, Any]) -> QOS:
    """The v1.35 helper on a raw object: sums of requests against sums of limits."""
    stanza = obj["spec"].get("resources")
    if stanza is None:
        pairs = [(container.requests, container.limits) for container in pod.containers]
    else:
        pairs = [(_amounts(stanza.get("requests")), _amounts(stanza.get("limits")))]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    complete = True
    for wanted, limited in pairs:
        for name in ("cpu", "memory"):
            if wanted.get(name, 0) > 0:
                requests[name] = requests.get(name, 0) + wanted[name]
            if limited.get(name, 0) > 0:
                limits[name] = limits.get(name, 0) + limited[name]
            else:
                complete = False
    if not requests and not limits:
        return QOS.BEST_EFFORT
    return QOS.GUARANTEED if complete and requests == limits else QOS.BURSTABLE


def _amounts(table: dict[str, Any] | None) -> dict[str, int]:
    return {name: parse_resource(name, amount) for name, amount in (table or {}).items()}


def _unknown(record: dict[str, Any], known: set[str]) -> list[str]:
    return [f"unknown field {name}" for name in sorted(record.keys() - known)]


def _differ(what: str, got: object, want: object) -> list[str]:
    return [] if got == want else [f"{what}: {got!r}, want {want!r}"]
