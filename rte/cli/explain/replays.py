"""``rte explain --case FILE``: a case of the drift alarm, replayed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte import errors
from rte.nrt import case as cases
from rte.placement import drift
from rte.placement.drift import wording
from rte.placement.kubelet import releases
from rte.reader import jsontext

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.node import NodeState
    from rte.nrt.case import CaseFile
    from rte.placement.drift import AdmissionOutcome, Case, Part
    from rte.reader.json import JsonObject


def show(path: Path, output: str) -> int:
    """Print each case of the file; 0 when all that the kubelet did may come of them.

    Raises:
        errors.UsageError: the file cannot be read, or holds no case.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        files = [cases.decode(line) for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"cannot read {path}: {errors.why_unreadable(error)}") from None
    except errors.ParseError as error:
        raise errors.UsageError(f"{path} is not a case of the drift alarm: {error}") from None
    if not files:
        raise errors.UsageError(f"{path} holds no case of the drift alarm")
    if output == "json":
        print(json.dumps([_as_json(file) for file in files], indent=2))
    else:
        print("\n\n".join(_as_text(file) for file in files))
    return 0 if all(drift.is_explained(file.case) for file in files) else 1


def _as_text(file: CaseFile) -> str:
    case, before = file.case, file.case.prediction.before
    config, pod = before.config, case.prediction.pod
    now = drift.replay(case)
    lines = [
        (
            f"{pod.namespace}/{pod.name} on {file.node}, recorded {file.recorded} "
            f"by rte {file.rte}: {case.result}"
        ),
        (
            f"  kubelet {before.kubelet_version}{_assumed(before)}: topology manager "
            f"{config.topology_policy} ({config.topology_scope} scope), CPU manager "
            f"{config.cpu_policy}, memory manager {config.memory_policy}"
        ),
        f"  meanwhile: {_meanwhile(case)}",
    ]
    for title, outcome in _outcomes(case, now):
        lines.append(f"  {title}: {_verdict(outcome)}")
        if outcome is not None:
            lines += [
                f"  {'!' if part in now.differences else ' '}   {wording.place(part)}: "
                f"{wording.held(part, outcome.parts.get(part))}"
                for part in sorted(outcome.parts.keys() | _differing(case, now))
                if not outcome.reason
            ]
    return "\n".join([*lines, "  " + _conclusion(case, now)])


def _assumed(state: NodeState) -> str:
    return " (rules assumed)" if releases.is_assumed(state.kubelet_version) else ""


def _outcomes(case: Case, now: Case) -> list[tuple[str, AdmissionOutcome | None]]:
    return [
        ("predicted then", case.prediction.expected),
        ("the kubelet", case.got),
        ("predicted now", now.prediction.expected),
    ]


def _differing(case: Case, now: Case) -> set[Part]:
    return {*case.differences, *now.differences}


def _verdict(outcome: AdmissionOutcome | None) -> str:
    if outcome is None:
        return "uncertain"
    return f"refused ({outcome.reason})" if outcome.reason else "admitted"


def _meanwhile(case: Case) -> str:
    between = case.between
    if between.unknown:
        return "more than is known in detail"
    parts = [
        *(f"{pod.namespace}/{pod.name} came" for pod in between.admitted),
        *(f"{uid} ended" for uid in between.ended),
        *(f"{pod.namespace}/{pod.name} started" for pod in between.started),
    ]
    return ", ".join(parts) or "nothing"


def _conclusion(case: Case, now: Case) -> str:
    if not drift.is_explained(case):
        return "reproduced: by the rules of this rte the kubelet could not do that"
    if now.result is drift.Result.EXACT:
        return "not reproduced: this rte predicts what the kubelet did"
    return "not reproduced: what the kubelet did may come of it by the rules of this rte"


def _as_json(file: CaseFile) -> JsonObject:
    now = drift.replay(file.case)
    document: JsonObject = jsontext.load(cases.encode(file), "case", jsontext.FILE)
    replayed = cases.CaseFile(case=now, node=file.node, recorded=file.recorded, rte=file.rte)
    again = jsontext.load(cases.encode(replayed), "case", jsontext.FILE)
    document["replayed"] = {name: again[name] for name in ("result", "differences", "expected")}
    document["reproduced"] = not drift.is_explained(file.case)
    return document
