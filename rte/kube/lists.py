"""Whole collections, page by page, so that no answer is larger than the API server likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.kube.client import Client

#: Items per page, as client-go's pager asks for.
PAGE_ITEMS = 500


async def list_all(
    client: Client,
    path: str,
    selectors: Mapping[str, str] | None = None,
    *,
    not_older_than: str = "",
) -> dict[str, Any]:
    """A List of all items as of one moment: the newest (Kubernetes >= 1.34 has it in memory).

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
    listed: dict[str, Any] = await client.get(path, **query, **version, limit=str(PAGE_ITEMS))
    items = list(listed.get("items") or ())
    while token := (listed.get("metadata") or {}).get("continue"):
        try:
            listed = await client.get(path, **query, limit=str(PAGE_ITEMS), **{"continue": token})
        except errors.KubeError as error:
            if error.status != 410:
                raise
            # The rest of that moment is forgotten already: all in one, as client-go's pager does.
            listed = await client.get(path, **query, **version)
            items = []
        items += listed.get("items") or ()
    return {**listed, "items": items}
