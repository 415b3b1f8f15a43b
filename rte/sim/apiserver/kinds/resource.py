"""What a served resource is: names, behaviour flags, rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rte.sim.apiserver.kinds import meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.sim.apiserver.schema.structural import Definition
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def _nothing(*_: Obj) -> None:
    return None


def _accept(*_: Obj) -> list[Cause]:
    return []


def keep_status(new: Obj, old: Obj) -> None:
    """Status is written through its own sub-resource."""
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]


def keep_spec(new: Obj, old: Obj) -> None:
    """Only the status is written."""
    if "spec" in old:
        new["spec"] = old["spec"]


#: In the order in which the API server names those of custom resources.
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class Subresource(NamedTuple):
    """Group and version (as the resource's own where they are empty), kind and verbs."""

    group: str
    version: str
    kind: str
    verbs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class KindRules:
    """Per-kind behaviour; every callback may change its first argument in place.

    ``update`` and ``status`` get (new, old); by themselves they keep what the other one writes.
    ``generation`` names the fields whose change counts.
    """

    default: Callable[[Obj], None] = _nothing
    create: Callable[[Obj], None] = _nothing
    validate: Callable[[Obj], list[Cause]] = _accept
    update: Callable[[Obj, Obj], None] | None = None
    validate_update: Callable[[Obj, Obj], list[Cause]] | None = None
    status: Callable[[Obj, Obj], None] = keep_spec
    validate_status: Callable[[Obj, Obj], list[Cause]] = _accept
    generation: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServedResource:
    """One resource in one version.

    Attributes:
        struct: type in ``types.json``; "" for custom resources.
        verbs: what can be done with it; one that can only be created is a question, and what comes
            back its answer.
        store: name of the table that holds its objects; versions of one resource share it.
        fields: selectable fields beyond ``metadata.name`` and ``metadata.namespace``.
        returns_object: DELETE answers with the object instead of a Status.
        unconditional: PUT without resourceVersion is allowed.
        create_on_update: PUT creates a missing object.
        definition: the CRD version behind a custom resource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: str = ""
    store: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    check_name: Callable[[str], list[str]] = meta.subdomain
    returns_object: bool = False
    unconditional: bool = True
    create_on_update: bool = False
    rules: KindRules = field(default_factory=KindRules)
    definition: Definition | None = None

    @property
    def group_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def changed(self, new: Obj, old: Obj) -> None:
        """Bring a new object in line with the stored one, before its rules are asked."""
        if self.rules.update is not None:
            self.rules.update(new, old)
        elif self.has_status:
            keep_status(new, old)

    @property
    def table(self) -> str:
        """The store's table."""
        return self.store or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def is_stored(self) -> bool:
        """Whether what is created stays."""
        return "get" in self.verbs

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource."""
        return "status" in self.subresources
