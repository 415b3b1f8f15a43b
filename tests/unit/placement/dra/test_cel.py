"""CEL as Kubernetes has it; tests/vectors holds what its own environment answered."""

from __future__ import annotations

import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.placement.dra import Reason, decode
from rte.placement.dra.cel import expressions, values
from rte.placement.dra.verdict import ClaimRefusal

DEVICE = decode.device(
    {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "H100"},
            "index": {"int": 3},
            "driverVersion": {"version": "580.105.8+build"},
            "zones": {"ints": [1, 2]},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "share": {"value": "1500m"}},
        "allowMultipleAllocations": True,
    }
)
OWN = 'device.attributes["gpu.example"]'
SIZE = 'device.capacity["gpu.example"]'

#: A hundred thousand sums.
FOREVER = "a + b + c + d + e > 0"
for name in "edcba":
    FOREVER = f"[1,2,3,4,5,6,7,8,9,10].all({name}, {FOREVER})"


def answer(expression: str) -> bool | Reason:
    try:
        return expressions.evaluate(expression, "gpu.example", DEVICE)
    except ClaimRefusal as refusal:
        assert "\n" not in str(refusal)
        return refusal.reason


#: Each side of a comparison is a comparison.
NESTED, SUMS = "true", "1"
for _ in range(15):
    NESTED = f'({NESTED} ? dyn(1) : dyn("a")) == 1'
    SUMS = f'quantity("1").add({SUMS}).compareTo(quantity("1"))'
#: Lists of 2^40 numbers.
DOUBLED = "v40.size() > 0"
for number in range(40, 0, -1):
    DOUBLED = f"cel.bind(v{number}, v{number - 1} + v{number - 1}, {DOUBLED})"
DOUBLED = f"cel.bind(v0, [1], {DOUBLED})"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'{OWN}.model == "H100" && device.allowMultipleAllocations', True),
        ('device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci")', True),
        # A domain that is not there is an empty map where it is looked up, and only there.
        ('has(device.attributes["other"].x)', False),
        ('device.attributes["other"].?x.orValue(7) == 7', True),
        ('"other" in device.attributes', False),
        ('"other" in device.attributes || device.attributes["other"].x == 1', Reason.CEL_RUNTIME),
        ("device.attributes[device.driver].index == 3", True),
        ('["a", "gpu.example"].exists(d, has(device.attributes[d].index))', True),
        (f"{OWN}.absent == 1", Reason.CEL_RUNTIME),
        # Quantities.
        (f'{SIZE}.memory.isGreaterThan(quantity("40Gi"))', True),
        (f'{SIZE}.memory == quantity("81920Mi")', True),
        (f'{SIZE}.memory in [quantity("80Gi")]', True),
        (f'{SIZE}.memory > quantity("40Gi")', Reason.CEL_COMPILE),
        (f"{SIZE}.memory", Reason.CEL_COMPILE),
        (f'{SIZE}.memory.sub(quantity("79Gi")).asInteger() == 1073741824', True),
        (f"{SIZE}.share.asInteger() == 1", Reason.CEL_RUNTIME),
        ('quantity("nonsense").isInteger()', Reason.CEL_RUNTIME),
        # Versions.
        (f'{OWN}.driverVersion.isLessThan(semver("580.105.8"))', False),
        (f'{OWN}.driverVersion == semver("580.105.8")', True),
        (f'{OWN}.driverVersion == "580.105.8"', Reason.CEL_RUNTIME),
        (f'"580.105.8" == {OWN}.driverVersion', False),
        ('semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))', True),
        (f'{OWN}.driverVersion.compareTo(semver("9.0.0")) == 1', True),
        (f'{OWN}.model.isLessThan(semver("9.0.0"))', Reason.CEL_RUNTIME),
        (f"string({OWN}.driverVersion) == 'x'", Reason.CEL_RUNTIME),
        (f'{OWN}.driverVersion != "580.105.8" || true', True),
        (f"{OWN}.driverVersion.major() == 580 && {OWN}.driverVersion.patch() == 8", True),
        ('semver("1.2").major() == 1', Reason.CEL_RUNTIME),
        ('semver("v1.02", true).minor() == 2', True),
        ('isSemver("1.2")', False),
        (f"{OWN}.index.compareTo({OWN}.index) == 0", Reason.CEL_RUNTIME),
        (f"{OWN}.model.isLessThan({OWN}.model)", Reason.CEL_RUNTIME),
        (f"{OWN}.driverVersion.isLessThan({OWN}.driverVersion)", False),
        # What is no version is none: an error where the version is asked, no equality where not.
        (f'{OWN}.driverVersion != "580.105.8"', True),
        (f"{OWN}.driverVersion == {OWN}.model", Reason.CEL_RUNTIME),
        (f"{OWN}.model == {OWN}.driverVersion", False),
        (f"{OWN}.driverVersion == {OWN}.driverVersion", True),
        (f"{OWN}.driverVersion == null", False),
        (f"{SIZE}.memory == {OWN}.index", Reason.CEL_RUNTIME),
        (f'!({OWN}.driverVersion in ["580.105.8"])', Reason.CEL_RUNTIME),
        (f'{OWN}.driverVersion in [semver("580.105.8")]', True),
        (f"{OWN}.absent in []", False),
        # A sum of quantities is equal to others, but others are not equal to it.
        (f'{SIZE}.memory.add(quantity("0")) == {SIZE}.memory', True),
        (f'{SIZE}.memory == {SIZE}.memory.add(quantity("0"))', Reason.CEL_RUNTIME),
        (f'{SIZE}.memory != {SIZE}.memory.add(quantity("0"))', True),
        # Types.
        (f"{OWN}.index == 3.0", True),
        (f'{OWN}.index == "3"', False),
        (f"{OWN}.model", Reason.CEL_RUNTIME),
        ('[1, "a"].size() == 2', Reason.CEL_COMPILE),
        (f"{OWN}.index in [3, {OWN}.index]", Reason.CEL_COMPILE),
        (f"{OWN}.index in [{OWN}.model, {OWN}.index]", True),
        ("[?optional.of(1), 2].size() == 2", True),
        ('{"a": 1, "b": dyn(2)}.size() == 2', Reason.CEL_COMPILE),
        ("""'%s %d'.format(["a", 1]) == "a 1\"""", True),
        ("[1].flatten() == [1]", Reason.CEL_COMPILE),
        (f"[[1], [2]].flatten() == [1, 2] && {OWN}.zones.flatten() == [1, 2]", True),
        # Literals that no function can read, whether they would be read or not.
        ('true || duration("soon") > duration("1m")', Reason.CEL_COMPILE),
        ('true || timestamp("now") > timestamp("2026-01-01T00:00:00Z")', Reason.CEL_COMPILE),
        (f'true || {OWN}.model.matches("(")', Reason.CEL_COMPILE),
        (f'{OWN}.model.matches("^H\\\\d+$")', True),
        (f'{OWN}.zones.exists(z, {OWN}.model.matches("^H[0-9]{{2,4}}$"))', True),
        (f'cel.bind(p, "^H", {OWN}.model.matches(p))', Reason.CEL_COMPILE),
        ('!"a".matches("((a{1,30}){1,30})b")', True),
        ('[1].all(x, !"a".matches("((a{1,30}){1,30})b"))', Reason.CEL_COMPILE),
        ('[1].all(x, [2].all(y, !"a".matches("b")))', Reason.CEL_COMPILE),
        # Fields of the device are always there.
        ("// it's a comment\nhas(device.driver)", True),
        (r'''"\"" != "" && """ "" \""" """ != "" && has(device.driver)''', True),
        ("has(device.driver) && has( device . attributes ) && has(device.capacity)", True),
        ("has(device.allowMultipleAllocations)", True),
        ("'has(device.driver)' == 'true'", False),
        ("has(device.fans)", Reason.CEL_COMPILE),
        ("device.fans == 2", Reason.CEL_COMPILE),
        ('"abc".reverse() == "cba"', Reason.CEL_COMPILE),
        # Lists and libraries.
        (f"{OWN}.zones.includes(2) && {OWN}.index.includes(3)", True),
        (f"{OWN}.zones.exists(z, z == 1)", True),
        ('sets.contains(["a", "b"], ["a"])', True),
        ("[dyn(1), dyn(1.0), dyn(2), dyn(true)].distinct().size() == 3", True),
        (
            "[[dyn(1), dyn(true)], [dyn(1.0), dyn(true)], [dyn(1), dyn(1)]].distinct().size() == 2",
            True,
        ),
        ("sets.equivalent([1, 1, 2], [2, 1]) && !sets.intersects([true], [false])", True),
        ('[{"a": [1]}, {"a": [1]}, {"a": [2]}].distinct().size() == 2', True),
        # As much as may be asked, of each device: not each item with each.
        ("sets.contains(lists.range(9999), lists.range(9999))", True),
        ("lists.range(9999).distinct().size() == 9999", True),
        ("[3, 1, 2].sort() == [1, 2, 3] && [1, 2].max() == 2", True),
        ('cidr("10.0.0.0/8").containsIP("10.1.2.3") && ip("::1").isLoopback()', True),
        ('isIP("::ffff:1.2.3.4")', False),
        ('url("https://a.example:80/b?c=1").getPort() == "80"', True),
        ('url("/a?b=1&c=2;d=3&e=%zz").getQuery() == {"b": ["1"]}', True),
        (f'{OWN}.model.substring(0, 4) == "H100" && {OWN}.model.substring(4, 4) == ""', True),
        (f'{OWN}.model.substring(0, 5) == "H100"', Reason.CEL_RUNTIME),
        (f'{OWN}.model.substring(3, 2) == ""', Reason.CEL_RUNTIME),
        (f'{OWN}.model.textBetween(0, 1) == "H"', Reason.CEL_COMPILE),
        ("lists.range(-1).isSorted()", Reason.CEL_RUNTIME),
        (f"cel.bind(own, {OWN}, own.index + 1 == 4)", True),
        # What goes on for ever does not.
        (FOREVER, Reason.CEL_RUNTIME),
        (NESTED, Reason.CEL_COMPILE),
        (DOUBLED, Reason.CEL_COMPILE),
        (f"{SUMS} == 1", Reason.CEL_COMPILE),
        ("true" + " " * 10_240, Reason.CEL_COMPILE),
        ("", Reason.CEL_COMPILE),
        ("(" * 500 + "true" + ")" * 500, Reason.CEL_COMPILE),
    ],
)
def test_expressions(expression: str, expected: bool | Reason) -> None:
    assert answer(expression) is expected


def test_an_attribute_that_is_no_version_fails_and_is_not_false() -> None:
    broken = decode.device({"name": "d", "attributes": {"v": {"version": "1.2"}}})

    with pytest.raises(ClaimRefusal):
        expressions.evaluate("false", "gpu.example", broken)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{OWN}.index + 1", {"int": 4}),
        (f'{OWN}.model == "H100"', {"bool": True}),
        (f'{OWN}.model.substring(0, 1) + "-class"', {"string": "H-class"}),
        (f"{OWN}.driverVersion", {"version": "580.105.8"}),
        (f"{OWN}.zones.map(z, z * 2)", {"ints": [2, 4]}),
        (f"[{OWN}.model]", {"strings": ["H100"]}),
    ],
)
def test_derived_attributes(expression: str, expected: dict) -> None:
    derived = expressions.derive(expression, "gpu.example", DEVICE)

    assert derived == decode.device({"name": "d", "attributes": {"x": expected}}).attributes["x"]


def test_a_derived_attribute_is_a_scalar_or_a_list_of_them() -> None:
    for expression in ("{1: 2}", '[[1], ["a"]]', f"{SIZE}.memory"):
        with pytest.raises(ClaimRefusal):
            expressions.derive(expression, "gpu.example", DEVICE)


PARTS = st.lists(st.integers(0, 30).map(str) | st.sampled_from(("a", "rc", "x-1")), max_size=3)


@given(st.lists(st.tuples(st.tuples(*[st.integers(0, 12)] * 3), PARTS), min_size=2, max_size=6))
def test_versions_are_ordered_as_semver_says(found) -> None:
    """Release after pre-release, numbers by value and before words, more parts after fewer."""

    def key(version) -> tuple:
        numbers, parts = version
        words = [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]
        return numbers, not parts, words

    def text(version) -> str:
        numbers, parts = version
        return ".".join(map(str, numbers)) + ("-" + ".".join(parts) if parts else "")

    wrapped = [values.semver_of(text(one)) for one in found]
    assert [values.semver_text(one) for one in wrapped] == [text(one) for one in found]
    for one, left in zip(found, wrapped, strict=True):
        for other, right in zip(found, wrapped, strict=True):
            assert (left > right, left == right) == (key(one) > key(other), key(one) == key(other))


@given(st.integers(-(10**40), 10**40), st.integers(-(10**40), 10**40))
def test_quantities_are_ordered_by_amount(one: int, other: int) -> None:
    left, right = values.of_nano(one), values.of_nano(other)

    assert (values.nano_of(left), values.nano_of(right)) == (one, other)
    assert (left > right, left == right) == (one > other, one == other)
    assert b"\0" not in left + right


@pytest.mark.parametrize(
    "expression",
    [
        f'{OWN}.model == "H100" && device.driver == "gpu.example"',
        f'{SIZE}.memory.compareTo(quantity("40Gi")) >= 0',
        f'{OWN}.driverVersion.isGreaterThan(semver("1.2.3"))',
        f"{OWN}.absent == 1",
    ],
)
def test_evaluation_leaves_nothing_behind(expression: str) -> None:
    """Calls from the library into Python do: what selectors use most does without."""
    answer(expression)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        answer(expression)
    gc.collect()

    assert len(gc.get_objects()) - before < 100


def test_few_programs_of_long_expressions_are_kept() -> None:
    kept = expressions._kept_long
    for number in range(kept.cache_info().maxsize + 8):
        assert answer(f"true{'&&true' * 100}{' ' * number}") is True

    assert kept.cache_info().currsize == kept.cache_info().maxsize == 32


def test_texts_that_never_end_cost_their_length_once() -> None:
    answer("true")
    began = time.process_time()
    for text in ('"' + r"\"" * 5000, "'" + r"\'" * 5000):
        assert answer(f"true // {text}"[:10_000]) is True
    assert time.process_time() - began < 0.1
