"""Whole collections, page by page, so that no answer is larger than the API server likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from rte.kube.client import Client
    from rte.reader.json import JsonObject

#: Items per page, as client-go's pager asks for.
PAGE_ITEMS = 500


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some items of a list.

    Attributes:
        items: of this page.
        first: the list begins with it (again: earlier pages are void).
        rest: the List without its items; that of the last page speaks for the whole.
    """

    items: list[JsonObject]
    first: bool
    rest: JsonObject


async def pages(
    client: Client,
    path: str,
    selectors: Mapping[str, str] | None = None,
    *,
    not_older_than: str = "",
) -> AsyncGenerator[ListPage, None]:
    """All items as of one moment: the newest (Kubernetes >= 1.34 has it in memory).

    With ``not_older_than``, a resourceVersion known here, a server may answer with what it has if
    that is not older (KEP-2340); one that lags behind says so with 504.

    Raises:
        errors.KubeError: the server refuses or does not answer.
    """
    query = dict(selectors or {})
    version = (
        {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
        if not_older_than
        else {}
    )
    listed: JsonObject = await client.get(path, **query, **version, limit=str(PAGE_ITEMS))
    yield _page(listed, first=True)
    while token := (listed.get("metadata") or {}).get("continue"):
        try:
            listed = await client.get(path, **query, limit=str(PAGE_ITEMS), **{"continue": token})
        except errors.KubeError as error:
            if error.status != 410:
                raise
            # The rest of that moment is forgotten already: all in one, as client-go's pager does.
            listed = await client.get(path, **query, **version)
            yield _page(listed, first=True)
        else:
            yield _page(listed, first=False)


async def list_all(
    client: Client,
    path: str,
    selectors: Mapping[str, str] | None = None,
    *,
    not_older_than: str = "",
) -> JsonObject:
    """A List of all items (:func:`pages`).

    Raises:
        errors.KubeError: the server refuses or does not answer.
    """
    items: list[JsonObject] = []
    rest: JsonObject = {}
    async for page in pages(client, path, selectors, not_older_than=not_older_than):
        if page.first:
            items = []
        items += page.items
        rest = page.rest
    return {**rest, "items": items}


def _page(listed: JsonObject, *, first: bool) -> ListPage:
    return ListPage(listed.pop("items", None) or [], first, listed)
