"""Pods: defaults, admission, validation, changes, as far as this project can meet them."""

from rte.sim.apiserver.kinds.pods.admission import (
    add_tolerations,
    admit_account,
    admit_overhead,
    admit_priority,
    denied,
)
from rte.sim.apiserver.kinds.pods.defaults import default_spec, prepare_create, set_defaults
from rte.sim.apiserver.kinds.pods.transitions import bind, disrupted
from rte.sim.apiserver.kinds.pods.updates import (
    prepare_status,
    prepare_update,
    validate_status,
    validate_update,
)
from rte.sim.apiserver.kinds.pods.validation import validate, validate_create
from rte.sim.apiserver.kinds.resource import KindRules

RULES = KindRules(
    default=set_defaults,
    create=prepare_create,
    validate=validate_create,
    update=prepare_update,
    validate_update=validate_update,
    status=prepare_status,
    validate_status=validate_status,
)

__all__ = [
    "RULES",
    "add_tolerations",
    "admit_account",
    "admit_overhead",
    "admit_priority",
    "bind",
    "default_spec",
    "denied",
    "disrupted",
    "validate",
]
