"""Table output: what ``kubectl get`` prints (meta.k8s.io/v1 Table)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver.kubectl.columns import AGE, COLUMNS, NAME, Column, at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Obj


def columns(kind: ServedResource) -> tuple[Column, ...]:
    """The columns of a resource."""
    if kind.definition is None:
        return COLUMNS.get(kind.table, (NAME, AGE))
    extra = [
        Column(
            str(item["name"]),
            at(str(item["jsonPath"]), str(item["type"]), None),
            int(item.get("priority") or 0),
            str(item["type"]),
        )
        for item in kind.definition.columns
    ]
    return (NAME, *(extra or [AGE]))


def table(
    kind: ServedResource,
    items: Sequence[Obj],
    metadata: Obj,
    *,
    include: str = "Metadata",
    header: bool = True,
) -> Obj:
    """A Table of objects. ``include`` says what each row carries: None, Metadata or Object."""
    shown = columns(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        **(
            {
                "columnDefinitions": [
                    {
                        "name": column.name,
                        "type": column.type if column.type != "date" else "string",
                        "format": "name" if column is NAME else "",
                        "description": "",
                        "priority": column.priority,
                    }
                    for column in shown
                ]
            }
            if header
            else {"columnDefinitions": None}
        ),
        "rows": [
            {"cells": [column.value(obj) for column in shown], "object": _carried(obj, include)}
            for obj in items
        ],
    }


def _carried(obj: Obj, include: str) -> Obj | None:
    if include == "None":
        return None
    return obj if include == "Object" else partial(obj)


def partial(obj: Obj) -> Obj:
    """PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
