"""Kubernetes' additions to CEL, as a table.

Not there, so that an expression which uses it cannot be compiled: ``find`` and ``findAll`` (another
regular expression engine), the library ``format``, two-variable comprehensions and ``sortBy``
(macros), and overloads of functions that the library has itself: ``string(ip)``, ``indexOf``,
``lastIndexOf`` and ``reverse`` of lists.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rte.model.quantity import NANO
from rte.placement.dra.cel import values
from rte.placement.dra.cel.values import wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence


class CELFunction(NamedTuple):
    """One overload; the name of a member function begins with a dot.

    Those without ``run`` are rewritten before they are evaluated (see ``tree``).
    """

    name: str
    id: str
    parameters: tuple[str, ...]
    result: str
    run: Callable[..., Any] | None


#: The library's ``substring`` with an end, which refuses the end of the text.
BETWEEN = "textBetween"


def internal() -> Iterable[CELFunction]:
    """Functions of no expression, to which the library's own are rewritten."""

    def between(text: str, start: int, end: int) -> str:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"invalid substring range, start: {start}, end: {end}")
        return text[start:end]

    yield CELFunction(f".{BETWEEN}", BETWEEN, ("string", "int", "int"), "string", between)


def table() -> Iterable[CELFunction]:
    """Every function that Kubernetes has and the CEL library has not."""
    yield from _quantities()
    yield from _versions()
    yield from _addresses()
    yield from _urls()
    yield from _lists()
    yield CELFunction(
        "sets.contains", "list_sets_contains_list", ("list", "list"), "bool", _contains
    )
    yield CELFunction(
        "sets.equivalent",
        "list_sets_equivalent_list",
        ("list", "list"),
        "bool",
        lambda one, other: _contains(one, other) and _contains(other, one),
    )
    yield CELFunction(
        "sets.intersects",
        "list_sets_intersects_list",
        ("list", "list"),
        "bool",
        lambda one, other: not _set(one).isdisjoint(_set(other)),
    )


def _quantities() -> Iterable[CELFunction]:
    q = "Quantity"

    def number(value: Any) -> int:
        return value * NANO if isinstance(value, int) else values.nano_of(value)

    def add(one: Any, other: Any) -> Any:
        return values.of_nano(values.nano_of(one) + number(other))

    def sub(one: Any, other: Any) -> Any:
        return values.of_nano(values.nano_of(one) - number(other))

    def approximate(value: Any) -> float:
        return values.nano_of(value) / NANO

    def sign(value: Any) -> int:
        nano = values.nano_of(value)
        return (nano > 0) - (nano < 0)

    yield CELFunction("quantity", "string_to_quantity", ("string",), q, values.quantity_of)
    yield CELFunction(
        "isQuantity", "is_quantity_string", ("string",), "bool", _works(values.quantity_of)
    )
    yield CELFunction("sign", "quantity_sign", (q,), "int", sign)
    yield from _comparisons("quantity", q)
    yield CELFunction(".asApproximateFloat", "quantity_get_float", (q,), "double", approximate)
    yield CELFunction(".asInteger", "quantity_get_int", (q,), "int", values.as_integer)
    yield CELFunction(".isInteger", "quantity_is_integer", (q,), "bool", values.is_integer)
    yield CELFunction(".add", "quantity_add", (q, q), q, add)
    yield CELFunction(".add", "quantity_add_int", (q, "int"), q, add)
    yield CELFunction(".sub", "quantity_sub", (q, q), q, sub)
    yield CELFunction(".sub", "quantity_sub_int", (q, "int"), q, sub)


def _versions() -> Iterable[CELFunction]:
    def of(text: str, lenient: bool = False) -> Any:
        return values.semver_of(text, lenient=lenient)

    s = "Semver"
    yield CELFunction("semver", "string_to_semver", ("string",), s, of)
    yield CELFunction("semver", "string_bool_to_semver", ("string", "bool"), s, of)
    yield CELFunction("isSemver", "is_semver_string", ("string",), "bool", _works(of))
    yield CELFunction("isSemver", "is_semver_string_bool", ("string", "bool"), "bool", _works(of))
    yield from _comparisons("semver", s)
    for place, name in enumerate(("major", "minor", "patch")):
        yield CELFunction(f".{name}", f"semver_{name}", (s,), "int", _numbered(place))


def _numbered(place: int) -> Callable[[Any], int]:
    return lambda value: values.version_number(value, place)


def _comparisons(name: str, kind: str) -> Iterable[CELFunction]:
    both = (kind, kind)
    yield CELFunction(".isGreaterThan", f"{name}_is_greater_than", both, "bool", None)
    yield CELFunction(".isLessThan", f"{name}_is_less_than", both, "bool", None)
    yield CELFunction(".compareTo", f"{name}_compare_to", both, "int", None)


def _addresses() -> Iterable[CELFunction]:
    def ip(text: str) -> Any:
        return wrap("IP", str(values.address(text)))

    def cidr(text: str) -> Any:
        return wrap("CIDR", str(values.network(text)))

    def ip_of_cidr(value: Any) -> Any:
        return wrap("IP", str(values.cidr_of(value).ip))

    def masked(value: Any) -> Any:
        return wrap("CIDR", str(values.cidr_of(value).network))

    def contains(outer: Any, inner: Any) -> bool:
        if isinstance(inner, str):
            return values.contains(values.cidr_of(outer), values.address(inner))
        return values.contains(values.cidr_of(outer), values.ip_of(inner))

    def contains_range(outer: Any, inner: Any) -> bool:
        found = values.network(inner) if isinstance(inner, str) else values.cidr_of(inner)
        return values.contains(values.cidr_of(outer), found)

    def is_canonical(text: str) -> bool:
        return str(values.address(text)) == text

    yield CELFunction("ip", "string_to_ip", ("string",), "IP", ip)
    yield CELFunction("isIP", "is_ip", ("string",), "bool", _works(ip))
    yield CELFunction("ip.isCanonical", "ip_is_canonical", ("string",), "bool", is_canonical)
    yield CELFunction(".family", "ip_family", ("IP",), "int", lambda v: values.ip_of(v).version)
    for name, id_, holds in (
        ("isUnspecified", "ip_is_unspecified", lambda found: found.is_unspecified),
        ("isLoopback", "ip_is_loopback", lambda found: found.is_loopback),
        ("isGlobalUnicast", "ip_is_global_unicast", values.is_global_unicast),
        (
            "isLinkLocalMulticast",
            "ip_is_link_local_multicast",
            lambda found: (
                str(found).startswith("224.0.0.")
                if found.version == 4
                else (int(found) >> 112) & 0xFF0F == 0xFF02
            ),
        ),
        ("isLinkLocalUnicast", "ip_is_link_local_unicast", lambda found: found.is_link_local),
    ):
        yield CELFunction(f".{name}", id_, ("IP",), "bool", _of_ip(holds))
    yield CELFunction("cidr", "string_to_cidr", ("string",), "CIDR", cidr)
    yield CELFunction("isCIDR", "is_cidr", ("string",), "bool", _works(cidr))
    for kind, id_ in (("string", "cidr_contains_ip_string"), ("IP", "cidr_contains_ip_ip")):
        yield CELFunction(".containsIP", id_, ("CIDR", kind), "bool", contains)
    for kind, id_ in (("string", "cidr_contains_cidr_string"), ("CIDR", "cidr_contains_cidr")):
        yield CELFunction(".containsCIDR", id_, ("CIDR", kind), "bool", contains_range)
    yield CELFunction(".ip", "cidr_ip", ("CIDR",), "IP", ip_of_cidr)
    yield CELFunction(
        ".prefixLength",
        "cidr_prefix_length",
        ("CIDR",),
        "int",
        lambda v: values.cidr_of(v).network.prefixlen,
    )
    yield CELFunction(".masked", "cidr_masked", ("CIDR",), "CIDR", masked)


def _of_ip(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: holds(values.ip_of(value))


def _urls() -> Iterable[CELFunction]:
    def part(read: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda value: read(values.url_part(value))

    def port(value: Any) -> str:
        found = values.url_part(value).port
        return "" if found is None else str(found)

    def query(value: Any) -> dict[str, list[str]]:
        return values.query_of(values.url_part(value).query)

    yield CELFunction("url", "string_to_url", ("string",), "URL", values.url_of)
    yield CELFunction("isURL", "is_url_string", ("string",), "bool", _works(values.url_of))
    for name, id_, read in (
        ("getScheme", "url_get_scheme", part(lambda split: split.scheme)),
        ("getHost", "url_get_host", part(lambda split: split.netloc.rpartition("@")[2])),
        ("getHostname", "url_get_hostname", values.url_hostname),
        ("getPort", "url_get_port", port),
        ("getEscapedPath", "url_get_escaped_path", part(lambda split: split.path)),
    ):
        yield CELFunction(f".{name}", id_, ("URL",), "string", read)
    yield CELFunction(".getQuery", "url_get_query", ("URL",), "map", query)


def _lists() -> Iterable[CELFunction]:
    def index(found: Sequence[Any], item: Any) -> int:
        wanted = identity(item)
        return next((place for place, one in enumerate(found) if identity(one) == wanted), -1)

    def cut(found: Sequence[Any], start: int, end: int) -> Sequence[Any]:
        if not 0 <= start <= end <= len(found):
            raise ValueError("slice out of range")
        return found[start:end]

    def flatten(found: Sequence[Any], depth: int = 1) -> list[Any]:
        if depth < 0:
            raise ValueError("level must be non-negative")
        flat: list[Any] = []
        for one in found:
            flat.extend(flatten(one, depth - 1) if isinstance(one, list) and depth else [one])
        return flat

    def distinct(found: Sequence[Any]) -> list[Any]:
        kept: dict[Hashable, Any] = {}
        for one in found:
            kept.setdefault(identity(one), one)
        return list(kept.values())

    def includes(found: Any, item: Any) -> bool:
        return index(found if isinstance(found, list) else [found], item) >= 0

    def is_sorted(found: Sequence[Any]) -> bool:
        return all(one <= other for one, other in itertools.pairwise(_of_one_type(found)))

    yield CELFunction(".isSorted", "list_is_sorted", ("list",), "bool", is_sorted)
    yield CELFunction(".sum", "list_sum", ("list",), "dyn", lambda found: sum(_of_one_type(found)))
    yield CELFunction(".min", "list_min", ("list",), "dyn", lambda found: min(_of_one_type(found)))
    yield CELFunction(".max", "list_max", ("list",), "dyn", lambda found: max(_of_one_type(found)))
    yield CELFunction(".includes", "list_includes", ("dyn", "dyn"), "bool", includes)
    yield CELFunction(".slice", "list_slice", ("list", "int", "int"), "list", cut)
    yield CELFunction(".flatten", "list_flatten", ("lists",), "list", flatten)
    yield CELFunction(".flatten", "list_flatten_int", ("list", "int"), "list", flatten)
    yield CELFunction(".distinct", "list_distinct", ("list",), "list", distinct)
    yield CELFunction(
        ".sort", "list_sort", ("list",), "list", lambda found: sorted(_of_one_type(found))
    )
    yield CELFunction("lists.range", "lists_range", ("int",), "list", _range)


def _range(end: int) -> list[int]:
    if not 0 <= end <= 10_000:
        raise ValueError("range negative or too long")
    return list(range(end))


def _of_one_type(found: Sequence[Any]) -> Sequence[Any]:
    if len({type(one) for one in found}) > 1:
        raise ValueError("no such overload: elements of several types")
    return found


def _contains(outer: Sequence[Any], inner: Sequence[Any]) -> bool:
    return _set(outer).issuperset(_set(inner))


def _set(items: Sequence[Any]) -> frozenset[Hashable]:
    return frozenset(map(identity, items))


def identity(value: Any) -> Hashable:
    """The same for values that CEL takes for equal: numbers compare by value, other types only with
    their own, and what is no number equals nothing.
    """
    match value:
        case bool():
            return bool, value
        case list():
            return list, tuple(map(identity, value))
        case dict():
            return dict, frozenset((identity(key), identity(one)) for key, one in value.items())
        case bytearray():  # the library hands them out
            return bytes(value)
        case float() if math.isnan(value):
            return object()
    found: Hashable = value
    return found


def _works(function: Callable[..., Any]) -> Callable[..., bool]:
    def check(*arguments: Any) -> bool:
        try:
            function(*arguments)
        except ValueError:
            return False
        return True

    return check
