"""The objects of ``resource.k8s.io/v1`` as values, with the fields that allocation reads.

Names and meanings are those of ``k8s.io/api/resource/v1``. Quantities are exact integers in units
of 1e-9 (:class:`Nano`). Maps and lists must not be changed: values are shared.

What a later Kubernetes adds is not silently dropped: :mod:`rte.placement.dra.decode` notes the
unknown fields of a device or a request in ``unknown``, and neither is allocated then. Of node
selectors, which are core/v1's, unknown operators match nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from rte.k8s import wire
from rte.model import quantity
from rte.reader.json import JsonObject


class Nano(int):
    """A quantity in units of 1e-9."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str | int) -> Nano:
        """From the API's text.

        Raises:
            errors.ParseError: text outside the format.
        """
        return cls(quantity.parse_nano(text))

    def __str__(self) -> str:
        return quantity.format_nano(self)


class _Open(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of an API object; what is absent there has its default here, more is ignored."""


class _Closed(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of an API object whose every field matters to allocation."""


class _Named(_Open, frozen=True):
    """An object of the API."""

    metadata: wire.Metadata

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name or ""

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.metadata.namespace or ""

    @property
    def uid(self) -> str:
        """What tells it from one of the same name."""
        return self.metadata.uid or ""


# --- ResourceSlice -------------------------------------------------------------------------------


class Attribute(_Closed, frozen=True):
    """An attribute's value: exactly one field is set."""

    integer: int | None = field(default=None, name="int")
    boolean: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    integers: tuple[int, ...] | None = field(default=None, name="ints")
    booleans: tuple[bool, ...] | None = field(default=None, name="bools")
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class ValidRange(_Closed, frozen=True):
    """Amounts that a request may take: from ``min`` in steps up to ``max``."""

    min: Nano | None = None
    max: Nano | None = None
    step: Nano | None = None


class RequestPolicy(_Closed, frozen=True):
    """What may be taken of a capacity that several allocations share."""

    default: Nano | None = None
    valid_values: tuple[Nano, ...] | None = None
    valid_range: ValidRange | None = None


class DeviceCapacity(_Closed, frozen=True):
    """How much of something a device has."""

    value: Nano
    request_policy: RequestPolicy | None = None


class Counter(_Closed, frozen=True):
    """An amount in a counter set, or taken of it."""

    value: Nano


class CounterSet(_Closed, frozen=True):
    """Counters that devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(_Closed, frozen=True):
    """What a device takes of one counter set while it is allocated."""

    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(_Closed, frozen=True):
    """Keeps requests without a matching toleration away."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(_Closed, frozen=True):
    """One device of a slice. ``unknown`` names fields that this release does not understand."""

    name: str
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: wire.NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    unknown: tuple[str, ...] = ()


class ResourcePool(_Closed, frozen=True):
    """The pool that a slice is part of."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(_Closed, frozen=True):
    """Devices of one driver; ``unknown`` as in :class:`Device`, for all of them."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: wire.NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class ResourceSlice(_Named, frozen=True):
    """A part of a pool."""

    spec: SliceSpec


class TaintSelector(_Closed, frozen=True):
    """Which devices a rule taints: all given fields must match."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(_Closed, frozen=True):
    """A taint and its devices; an absent selector matches none, an empty one all."""

    taint: DeviceTaint = DeviceTaint()
    device_selector: TaintSelector | None = None


class DeviceTaintRule(_Named, frozen=True):
    """Taints devices from outside of their driver."""

    spec: TaintRuleSpec


# --- DeviceClass and ResourceClaim ---------------------------------------------------------------


class CELSelector(_Closed, frozen=True):
    """An expression over ``device``."""

    expression: str


class DeviceSelector(_Closed, frozen=True):
    """How a device is chosen; without ``cel`` a form that is not known."""

    cel: CELSelector | None = None


class ClassConfiguration(_Closed, frozen=True):
    """Parameters for a driver."""

    opaque: JsonObject | None = None


class ClassSpec(_Closed, frozen=True):
    """What devices of the class have in common."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[ClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    unknown: tuple[str, ...] = ()


class DeviceClass(_Named, frozen=True):
    """A kind of device, named by requests."""

    spec: ClassSpec = ClassSpec()


class DeviceToleration(_Closed, frozen=True):
    """Lets a request take tainted devices."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(_Closed, frozen=True):
    """How much of each capacity a request needs."""

    requests: dict[str, Nano] = {}


class DerivedAttribute(_Closed, frozen=True):
    """An attribute that constraints see and an expression computes."""

    name: str
    expression: str


class ExactRequest(_Closed, frozen=True):
    """A request, or one alternative of it (then with a ``name``)."""

    device_class_name: str = ""
    name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(_Closed, frozen=True):
    """One request of a claim: ``exactly``, or the first of several alternatives."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class Constraint(_Closed, frozen=True):
    """What the devices of the named requests (none named: all) have in common, or never."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfiguration(_Closed, frozen=True):
    """Parameters for a driver, for some requests or all."""

    requests: tuple[str, ...] = ()
    opaque: JsonObject | None = None


class DeviceClaim(_Closed, frozen=True):
    """What a claim asks for; ``unknown`` as in :class:`Device`."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()
    unknown: tuple[str, ...] = ()


class ClaimSpec(_Closed, frozen=True):
    """The specification of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceResult(_Open, frozen=True):
    """One allocated device."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Nano] | None = None
    skip_node_operations: tuple[str, ...] = ()


class AllocationConfiguration(_Open, frozen=True):
    """Parameters for a driver and where they come from."""

    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...] = ()
    opaque: JsonObject | None = None


class DeviceAllocationResult(_Open, frozen=True):
    """Devices and their parameters."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[AllocationConfiguration, ...] = ()


class AllocationResult(_Open, frozen=True):
    """What a claim was given, and the nodes that can use it (None: all)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: wire.NodeSelector | None = None
    allocation_timestamp: str | None = None


class DeviceStatus(_Open, frozen=True):
    """What a driver reports of an allocated device."""

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[wire.Condition, ...] = ()


class Consumer(_Open, frozen=True):
    """Who may use a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""


class ClaimStatus(_Open, frozen=True):
    """The state of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()


class ResourceClaim(_Named, frozen=True):
    """A demand for devices and what became of it."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()
