"""What a list or watch selects, and where in the history it looks."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from rte.reader import jsontext
from rte.sim.apiserver import status
from rte.sim.apiserver.storage.store import Key, Obj, field_text

if TYPE_CHECKING:
    from rte.k8s.selectors import Requirement
    from rte.sim.apiserver.storage.selectors import FieldRequirement


@dataclass(frozen=True, slots=True)
class Query:
    """What a list, watch or deletecollection selects and how far back it looks."""

    namespace: str = ""
    name: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""

    def matches(self, key: Key, obj: Obj) -> bool:
        """Whether an object is selected."""
        if self.namespace and key[0] != self.namespace:
            return False
        for wanted in self.fields:
            if (_selectable(obj, wanted.field) == wanted.value) != wanted.equal:
                return False
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            return all(wanted.accepts(labels.get(wanted.key)) for wanted in self.labels)
        return True

    @property
    def index(self) -> tuple[str, str] | None:
        """See :class:`rte.sim.apiserver.storage.store.StoreSelection`."""
        for wanted in self.fields:
            if wanted.equal and wanted.field in ("metadata.name", "spec.nodeName"):
                return wanted.field, wanted.value
        return None


def _selectable(obj: Obj, path: str) -> str:
    text = field_text(obj, path)
    if path in ("spec.hostNetwork", "spec.unschedulable"):
        return text or "false"
    if path == "source":
        return field_text(obj, "source.component") or field_text(obj, "reportingComponent")
    return text


@dataclass(slots=True)
class StoredPage:
    """The answer to a list: objects, the version they show and where the next page starts."""

    items: list[Obj]
    version: str
    token: str = ""
    remaining: int | None = None


def parse_version(text: str) -> int:
    """A resourceVersion as a number.

    Raises:
        status.StatusError: 400.
    """
    if not (text.isascii() and text.isdigit()):
        raise status.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def too_large(wanted: int, current: int) -> status.StatusError:
    """504 for a version that does not exist yet."""
    return status.StatusError(
        504,
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def make_token(revision: int, last: str) -> str:
    """A continue token: the revision of the list and the last object that was shown."""
    body = {"v": "meta.k8s.io/v1", "rv": revision, "start": last + "\0"}
    return base64.urlsafe_b64encode(orjson.dumps(body)).decode().rstrip("=")


def read_token(token: str) -> tuple[int | None, str]:
    """Revision and last object of a continue token.

    Raises:
        status.StatusError: 400.
    """
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        body = jsontext.load(text, "continue token")
        return int(body["rv"]), str(body["start"]).removesuffix("\0")
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise status.bad_request(
            f"invalid continue token: continue key is not valid: {error}"
        ) from error
