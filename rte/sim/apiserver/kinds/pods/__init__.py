"""Pods: defaults, admission, validation, changes, as far as this project can meet them."""

from rte.sim.apiserver.kinds.pods.admission import (
    add_tolerations,
    admit_account,
    admit_overhead,
    admit_priority,
    denied,
)
from rte.sim.apiserver.kinds.pods.defaults import prepare_create, set_defaults, set_spec_defaults
from rte.sim.apiserver.kinds.pods.transitions import bind, disrupted
from rte.sim.apiserver.kinds.pods.updates import (
    prepare_status,
    prepare_update,
    validate_status,
    validate_update,
)
from rte.sim.apiserver.kinds.pods.validation import validate, validate_create

__all__ = [
    "add_tolerations",
    "admit_account",
    "admit_overhead",
    "admit_priority",
    "bind",
    "denied",
    "disrupted",
    "prepare_create",
    "prepare_status",
    "prepare_update",
    "set_defaults",
    "set_spec_defaults",
    "validate",
    "validate_create",
    "validate_status",
    "validate_update",
]
