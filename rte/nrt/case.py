"""Case files: one prediction and what came of it, as versioned JSON on one line.

A case is complete in itself: the node's state before, the pod, what may have happened meanwhile,
what was expected and what the kubelet did. So it can be replayed by any release of rte
(``rte explain --case FILE``), and kept as a vector (``python -m tests.conformance rte_case FILE``).
A file of several cases has one on each line. docs/operations.md shows the keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import orjson

from rte import errors
from rte.model import bits
from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.nrt import node_state
from rte.placement.drift import AdmissionOutcome, Case, Meanwhile, Part, Prediction, Result
from rte.placement.drift.parts import CPUS, MEMORY
from rte.reader import jsontext

if TYPE_CHECKING:
    from rte.model.node import NodeState
    from rte.placement.drift import Held
    from rte.placement.drift.parts import Rows

VERSION = 1

_Rows = list[tuple[str, str | None, int]]


class _Share(msgspec.Struct, omit_defaults=True):
    """What one container holds: sets as kernel lists; rows of resource, zones, bytes or number."""

    cpus: str = ""
    memory: _Rows = []
    devices: _Rows = []


class _Outcome(msgspec.Struct, omit_defaults=True):
    reason: str = ""
    containers: dict[str, _Share] = {}


class _Container(msgspec.Struct):
    name: str
    kind: ContainerKind
    requests: dict[str, int]
    limits: dict[str, int]


class _Pod(msgspec.Struct, rename="camel"):
    uid: str
    namespace: str
    name: str
    qos: QOS
    containers: list[_Container]
    overhead: dict[str, int]
    pod_requests: dict[str, int] | None
    pod_limits: dict[str, int] | None


class _Between(msgspec.Struct, omit_defaults=True):
    admitted: list[_Pod] = []
    ended: list[str] = []
    started: list[_Pod] = []
    unknown: bool = False


class _CaseDocument(msgspec.Struct, rename="camel"):
    rte_case: int
    id: str
    rte: str
    node: str
    recorded: str
    result: Result
    differences: list[tuple[str, str]]
    before: msgspec.Raw
    pod: _Pod
    between: _Between
    expected: _Outcome | None
    got: _Outcome


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """A case, and where it comes from.

    Attributes:
        case: the prediction and its outcome.
        node: name of the node.
        recorded: when (ISO 8601, UTC).
        rte: version of the program that predicted.
    """

    case: Case
    node: str
    recorded: str
    rte: str

    @property
    def id(self) -> str:
        """Names kubelet version and configuration: one case of each says it all."""
        return kind_of(self.case.prediction.before)


def kind_of(state: NodeState) -> str:
    """A name for the kubelet's version and configuration, fit for a file: ``v1.37.1-0a1b2c3d``."""
    config = msgspec.to_builtins(state.config, str_keys=True)
    digest = hashlib.sha256(orjson.dumps(config, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]
    version = "".join(c if c.isalnum() or c in ".-" else "_" for c in state.kubelet_version)
    return f"{version or 'unknown'}-{digest}"


def encode(file: CaseFile) -> str:
    """One line of JSON; equal cases give equal text."""
    case, before = file.case, file.case.prediction.before
    expected = case.prediction.expected
    document = _CaseDocument(
        rte_case=VERSION,
        id=file.id,
        rte=file.rte,
        node=file.node,
        recorded=file.recorded,
        result=case.result,
        differences=[(part.container, part.what) for part in case.differences],
        before=msgspec.Raw(node_state.encode(before).encode()),
        pod=_encode_pod(case.prediction.pod),
        between=_Between(
            admitted=[_encode_pod(pod) for pod in case.between.admitted],
            ended=list(case.between.ended),
            started=[_encode_pod(pod) for pod in case.between.started],
            unknown=case.between.unknown,
        ),
        expected=None if expected is None else _encode_outcome(expected),
        got=_encode_outcome(case.got),
    )
    return msgspec.json.encode(document, order="deterministic").decode()


def decode(text: str | bytes) -> CaseFile:
    """Read a case.

    Raises:
        errors.ParseError: it is no case file, or one of another version.
    """
    version = jsontext.decode(text, _Version, "case file", jsontext.FILE).rte_case
    if version != VERSION:
        raise errors.ParseError(
            "case file", version, f"this program reads version {VERSION}; use a newer release"
        )
    document = jsontext.decode(text, _CaseDocument, "case file", jsontext.FILE)
    before = node_state.decode(bytes(document.before).decode())
    between = document.between
    return CaseFile(
        case=Case(
            prediction=Prediction(
                before=before,
                pod=_decode_pod(document.pod),
                expected=None if document.expected is None else _decode_outcome(document.expected),
            ),
            between=Meanwhile(
                admitted=tuple(_decode_pod(pod) for pod in between.admitted),
                ended=tuple(between.ended),
                started=tuple(_decode_pod(pod) for pod in between.started),
                unknown=between.unknown,
            ),
            got=_decode_outcome(document.got),
            result=document.result,
            differences=tuple(Part(*part) for part in document.differences),
        ),
        node=document.node,
        recorded=document.recorded,
        rte=document.rte,
    )


class _Version(msgspec.Struct, rename="camel"):
    rte_case: int


def _encode_pod(pod: Pod) -> _Pod:
    return msgspec.convert(pod, _Pod, from_attributes=True)


def _decode_pod(document: _Pod) -> Pod:
    fields = msgspec.structs.asdict(document)
    boxes = [Container(**msgspec.structs.asdict(box)) for box in document.containers]
    return Pod(**{**fields, "containers": tuple(boxes)})


def _encode_outcome(outcome: AdmissionOutcome) -> _Outcome:
    shares: dict[str, _Share] = {}
    for (container, what), held in sorted(outcome.parts.items()):
        share = shares.setdefault(container, _Share())
        if isinstance(held, int):
            share.cpus = bits.format_list(held)
        elif what == MEMORY:
            share.memory = _encode_rows(held)
        else:
            share.devices = share.devices + _encode_rows(held)
    return _Outcome(reason=outcome.reason, containers=shares)


def _encode_rows(rows: Rows) -> _Rows:
    return [
        (name, None if zones is None else bits.format_list(zones), amount)
        for name, zones, amount in rows
    ]


def _decode_outcome(document: _Outcome) -> AdmissionOutcome:
    parts: dict[Part, Held] = {}
    for container, share in document.containers.items():
        if share.cpus:
            parts[Part(container, CPUS)] = bits.parse_list(share.cpus, "case file")
        if share.memory:
            parts[Part(container, MEMORY)] = _decode_rows(share.memory)
        for resource in {row[0] for row in share.devices}:
            rows = [row for row in share.devices if row[0] == resource]
            parts[Part(container, resource)] = _decode_rows(rows)
    return AdmissionOutcome(parts=parts, reason=document.reason)


def _decode_rows(rows: _Rows) -> Rows:
    return tuple(
        (name, None if zones is None else bits.parse_list(zones, "case file"), amount)
        for name, zones, amount in rows
    )
