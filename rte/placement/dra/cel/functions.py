"""Kubernetes' additions to CEL, as a table.

Not there, so that an expression which uses it cannot be compiled: ``find`` and ``findAll`` (another
regular expression engine), the library ``format``, two-variable comprehensions and ``sortBy``
(macros), and overloads of functions that the library has itself: ``string(ip)``, ``indexOf``,
``lastIndexOf`` and ``reverse`` of lists.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from rte.model.quantity import NANO
from rte.placement.dra.cel import values
from rte.placement.dra.cel.values import Value, wrap

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
    run: Callable[..., Value] | None


#: The library's ``substring`` with an end, which refuses the end of the text.
BETWEEN = "textBetween"


def internal() -> Iterable[CELFunction]:
    """Functions of no expression, to which the library's own are rewritten."""

    def between(text: str, start: int, end: int) -> str:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"invalid substring range, start: {start}, end: {end}")
        return text[start:end]

    return (CELFunction(f".{BETWEEN}", BETWEEN, ("string", "int", "int"), "string", between),)


def table() -> Iterable[CELFunction]:
    """Every function that Kubernetes has and the CEL library has not."""
    return (*_quantities(), *_versions(), *_addresses(), *_urls(), *_lists(), *_sets())


def _sets() -> Iterable[CELFunction]:
    both = ("list", "list")
    return (
        CELFunction("sets.contains", "list_sets_contains_list", both, "bool", _contains),
        CELFunction(
            "sets.equivalent",
            "list_sets_equivalent_list",
            both,
            "bool",
            lambda one, other: _set(one) == _set(other),
        ),
        CELFunction(
            "sets.intersects",
            "list_sets_intersects_list",
            both,
            "bool",
            lambda one, other: not _set(one).isdisjoint(_set(other)),
        ),
    )


def _quantities() -> Iterable[CELFunction]:
    q, of, nano = "Quantity", values.of_nano, values.nano_of
    return (
        CELFunction("quantity", "string_to_quantity", ("string",), q, values.quantity_of),
        _test("isQuantity", "is_quantity_string", ("string",), values.quantity_of),
        CELFunction("sign", "quantity_sign", (q,), "int", lambda v: (nano(v) > 0) - (nano(v) < 0)),
        *_comparisons("quantity", q),
        CELFunction(
            ".asApproximateFloat", "quantity_get_float", (q,), "double", lambda v: nano(v) / NANO
        ),
        CELFunction(".asInteger", "quantity_get_int", (q,), "int", values.as_integer),
        CELFunction(".isInteger", "quantity_is_integer", (q,), "bool", values.is_integer),
        CELFunction(".add", "quantity_add", (q, q), q, lambda v, w: of(nano(v) + _nano(w))),
        CELFunction(".add", "quantity_add_int", (q, "int"), q, lambda v, w: of(nano(v) + _nano(w))),
        CELFunction(".sub", "quantity_sub", (q, q), q, lambda v, w: of(nano(v) - _nano(w))),
        CELFunction(".sub", "quantity_sub_int", (q, "int"), q, lambda v, w: of(nano(v) - _nano(w))),
    )


def _nano(value: Value) -> int:
    """Of a quantity or a whole number."""
    return value * NANO if isinstance(value, int) else values.nano_of(value)


def _versions() -> Iterable[CELFunction]:
    def of(text: str, lenient: bool = False) -> Value:
        return values.semver_of(text, lenient=lenient)

    s = "Semver"
    return (
        CELFunction("semver", "string_to_semver", ("string",), s, of),
        CELFunction("semver", "string_bool_to_semver", ("string", "bool"), s, of),
        _test("isSemver", "is_semver_string", ("string",), of),
        _test("isSemver", "is_semver_string_bool", ("string", "bool"), of),
        *_comparisons("semver", s),
        CELFunction(".major", "semver_major", (s,), "int", lambda v: values.version_number(v, 0)),
        CELFunction(".minor", "semver_minor", (s,), "int", lambda v: values.version_number(v, 1)),
        CELFunction(".patch", "semver_patch", (s,), "int", lambda v: values.version_number(v, 2)),
    )


def _comparisons(name: str, kind: str) -> Iterable[CELFunction]:
    both = (kind, kind)
    return (
        CELFunction(".isGreaterThan", f"{name}_is_greater_than", both, "bool", None),
        CELFunction(".isLessThan", f"{name}_is_less_than", both, "bool", None),
        CELFunction(".compareTo", f"{name}_compare_to", both, "int", None),
    )


def _addresses() -> Iterable[CELFunction]:
    def ip(text: str) -> Value:
        return wrap("IP", str(values.address(text)))

    def cidr(text: str) -> Value:
        return wrap("CIDR", str(values.network(text)))

    def contains(outer: Value, inner: Value) -> bool:
        found = values.address(inner) if isinstance(inner, str) else values.ip_of(inner)
        return values.contains(values.cidr_of(outer), found)

    def contains_range(outer: Value, inner: Value) -> bool:
        found = values.network(inner) if isinstance(inner, str) else values.cidr_of(inner)
        return values.contains(values.cidr_of(outer), found)

    return (
        CELFunction("ip", "string_to_ip", ("string",), "IP", ip),
        _test("isIP", "is_ip", ("string",), ip),
        CELFunction(
            "ip.isCanonical",
            "ip_is_canonical",
            ("string",),
            "bool",
            lambda text: str(values.address(text)) == text,
        ),
        CELFunction(".family", "ip_family", ("IP",), "int", lambda v: values.ip_of(v).version),
        _of_ip("isUnspecified", "ip_is_unspecified", lambda found: found.is_unspecified),
        _of_ip("isLoopback", "ip_is_loopback", lambda found: found.is_loopback),
        _of_ip("isGlobalUnicast", "ip_is_global_unicast", values.is_global_unicast),
        _of_ip(
            "isLinkLocalMulticast", "ip_is_link_local_multicast", values.is_link_local_multicast
        ),
        _of_ip("isLinkLocalUnicast", "ip_is_link_local_unicast", lambda v: v.is_link_local),
        CELFunction("cidr", "string_to_cidr", ("string",), "CIDR", cidr),
        _test("isCIDR", "is_cidr", ("string",), cidr),
        *(
            CELFunction(".containsIP", f"cidr_contains_ip_{id_}", ("CIDR", kind), "bool", contains)
            for kind, id_ in (("string", "string"), ("IP", "ip"))
        ),
        CELFunction(
            ".containsCIDR", "cidr_contains_cidr_string", ("CIDR", "string"), "bool", contains_range
        ),
        CELFunction(
            ".containsCIDR", "cidr_contains_cidr", ("CIDR", "CIDR"), "bool", contains_range
        ),
        CELFunction(
            ".ip", "cidr_ip", ("CIDR",), "IP", lambda v: wrap("IP", str(values.cidr_of(v).ip))
        ),
        CELFunction(
            ".prefixLength",
            "cidr_prefix_length",
            ("CIDR",),
            "int",
            lambda v: values.cidr_of(v).network.prefixlen,
        ),
        CELFunction(
            ".masked",
            "cidr_masked",
            ("CIDR",),
            "CIDR",
            lambda v: wrap("CIDR", str(values.cidr_of(v).network)),
        ),
    )


def _of_ip(name: str, id_: str, holds: Callable[[Value], bool]) -> CELFunction:
    """What holds of an address."""
    return CELFunction(f".{name}", id_, ("IP",), "bool", lambda v: holds(values.ip_of(v)))


def _urls() -> Iterable[CELFunction]:
    def port(value: Value) -> str:
        found = values.url_part(value).port
        return "" if found is None else str(found)

    return (
        CELFunction("url", "string_to_url", ("string",), "URL", values.url_of),
        _test("isURL", "is_url_string", ("string",), values.url_of),
        *(
            CELFunction(f".{name}", id_, ("URL",), "string", read)
            for name, id_, read in (
                ("getScheme", "url_get_scheme", lambda v: values.url_part(v).scheme),
                (
                    "getHost",
                    "url_get_host",
                    lambda v: values.url_part(v).netloc.rpartition("@")[2],
                ),
                ("getHostname", "url_get_hostname", values.url_hostname),
                ("getPort", "url_get_port", port),
                ("getEscapedPath", "url_get_escaped_path", lambda v: values.url_part(v).path),
            )
        ),
        CELFunction(
            ".getQuery",
            "url_get_query",
            ("URL",),
            "map",
            lambda v: values.query_of(values.url_part(v).query),
        ),
    )


def _lists() -> Iterable[CELFunction]:
    def cut(found: Sequence[Value], start: int, end: int) -> Sequence[Value]:
        if not 0 <= start <= end <= len(found):
            raise ValueError("slice out of range")
        return found[start:end]

    def flatten(found: Sequence[Value], depth: int = 1) -> list[Value]:
        if depth < 0:
            raise ValueError("level must be non-negative")
        flat: list[Value] = []
        for one in found:
            flat.extend(flatten(one, depth - 1) if isinstance(one, list) and depth else [one])
        return flat

    def distinct(found: Sequence[Value]) -> list[Value]:
        kept: dict[Hashable, Value] = {}
        for one in found:
            kept.setdefault(identity(one), one)
        return list(kept.values())

    def includes(found: Value, item: Value) -> bool:
        return identity(item) in map(identity, found if isinstance(found, list) else [found])

    def is_sorted(found: Sequence[Value]) -> bool:
        return all(one <= other for one, other in itertools.pairwise(_of_one_type(found)))

    one_list = ("list",)
    return (
        CELFunction(".isSorted", "list_is_sorted", one_list, "bool", is_sorted),
        CELFunction(".sum", "list_sum", one_list, "dyn", lambda found: sum(_of_one_type(found))),
        CELFunction(".min", "list_min", one_list, "dyn", lambda found: min(_of_one_type(found))),
        CELFunction(".max", "list_max", one_list, "dyn", lambda found: max(_of_one_type(found))),
        CELFunction(".includes", "list_includes", ("dyn", "dyn"), "bool", includes),
        CELFunction(".slice", "list_slice", ("list", "int", "int"), "list", cut),
        CELFunction(".flatten", "list_flatten", ("lists",), "list", flatten),
        CELFunction(".flatten", "list_flatten_int", ("list", "int"), "list", flatten),
        CELFunction(".distinct", "list_distinct", one_list, "list", distinct),
        CELFunction(
            ".sort", "list_sort", one_list, "list", lambda found: sorted(_of_one_type(found))
        ),
        CELFunction("lists.range", "lists_range", ("int",), "list", _range),
    )


def _range(end: int) -> list[int]:
    if not 0 <= end <= 10_000:
        raise ValueError("range negative or too long")
    return list(range(end))


def _of_one_type(found: Sequence[Value]) -> Sequence[Value]:
    if len({type(one) for one in found}) > 1:
        raise ValueError("no such overload: elements of several types")
    return found


def _contains(outer: Sequence[Value], inner: Sequence[Value]) -> bool:
    return _set(outer).issuperset(_set(inner))


def _set(items: Sequence[Value]) -> frozenset[Hashable]:
    return frozenset(map(identity, items))


def identity(value: Value) -> Hashable:
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


def _test(
    name: str, id_: str, parameters: tuple[str, ...], make: Callable[..., object]
) -> CELFunction:
    """Whether a value can be made."""

    def check(*arguments: Value) -> bool:
        try:
            make(*arguments)
        except ValueError:
            return False
        return True

    return CELFunction(name, id_, parameters, "bool", check)
