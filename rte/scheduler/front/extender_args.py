"""What kube-scheduler sends to an extender (k8s.io/kube-scheduler/extender/v1), checked."""

from __future__ import annotations

from typing import Any

from rte import errors
from rte.reader import jsontext
from rte.reader.json import Json, as_table


def parse(body: bytes) -> Json:
    """The arguments of a verb.

    Raises:
        errors.ParseError: the body is no JSON object.
    """
    return as_table(jsontext.answer(body, "arguments"), "arguments")


def names(args: Json) -> list[str]:
    """Names of the candidates."""
    given = args.get("NodeNames")
    if given is not None:
        return [str(name) for name in as_list(given, "NodeNames")]
    nodes = args.get("Nodes")
    return [] if nodes is None else [name for name, _ in items(nodes)]


def items(nodes: object) -> list[tuple[str, Json]]:
    """The Nodes of a NodeList, with their names."""
    found = []
    for item in as_list(as_table(nodes, "Nodes").get("items"), "Nodes.items"):
        metadata = as_table(as_table(item, "Node").get("metadata"), "Node.metadata")
        found.append((str(metadata.get("name")), item))
    return found


def proposals(args: Json) -> dict[str, tuple[list[str], int]]:
    """Node name -> UIDs of kube-scheduler's victims, and how many budgets they violate.

    From 1.38 on there may be none: its own filters pass, so only an extender stands in the way.
    """
    short = as_table(args.get("NodeNameToMetaVictims"), "NodeNameToMetaVictims")
    whole = as_table(args.get("NodeNameToVictims"), "NodeNameToVictims")
    found = {}
    for name, victims in (short or whole).items():
        proposal = as_table(victims, f"victims on {name}")
        uids = []
        for item in as_list(proposal.get("Pods"), f"victims on {name}"):
            victim = as_table(item, "victim")
            uid = (
                victim.get("UID")
                if short
                else as_table(victim.get("metadata"), "victim").get("uid")
            )
            if not isinstance(uid, str):
                raise errors.ParseError("victim", uid, "expected a UID")
            uids.append(uid)
        violations = proposal.get("NumPDBViolations") or 0
        if not isinstance(violations, int):
            raise errors.ParseError("NumPDBViolations", violations, "expected a number")
        found[name] = (uids, violations)
    return found


def as_list(value: object, what: str) -> list[Any]:
    """The list; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.ParseError(what, value, "expected a list")
    return value
