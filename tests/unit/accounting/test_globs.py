from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.accounting.globs import compile_glob, matches


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    # The table of path/filepath/match_test.go.
    [
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*", "abc", True),
        ("a*", "ab/c", False),
        ("a*/b", "abc/b", True),
        ("a*/b", "a/c/b", False),
        ("a*b*c*d*e*/f", "axbxcxdxe/f", True),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/f", True),
        ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", False),
        ("a*b?c*x", "abxbbxdbxebxczzx", True),
        ("a*b?c*x", "abxbbxdbxebxczzy", False),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^b-d]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "ab", False),
        ("a?b", "a☺b", True),
        ("a[^a]b", "a☺b", True),
        ("a???b", "a☺b", False),
        ("a[^a][^a][^a]b", "a☺b", False),
        ("[a-ζ]*", "δ", True),
        ("*[a-ζ]", "A", False),
        ("a?b", "a/b", False),
        ("a*b", "a/b", False),
        ("[\\]a]", "]", True),
        ("[\\-]", "-", True),
        ("[x\\-]", "x", True),
        ("[x\\-]", "-", True),
        ("[x\\-]", "z", False),
        ("[\\-x]", "x", True),
        ("[\\-x]", "-", True),
        ("[\\-x]", "a", False),
        ("*x", "xxx", True),
        ("[z-a]", "b", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_globs_match_as_in_go(glob: str, text: str, expected: bool) -> None:
    assert matches(glob, text) is expected


@pytest.mark.parametrize(
    "glob", ["[]a]", "[-]", "[x-]", "[-x]", "\\", "[a-b-c]", "[", "[^", "[^bc", "a[", "a[\\"]
)
def test_a_malformed_glob_is_named(glob: str) -> None:
    with pytest.raises(errors.ParseError, match="bad glob"):
        compile_glob(glob)


@given(st.text(alphabet="ab*?[]^-\\/", max_size=8), st.text(alphabet="ab^-/]", max_size=5))
def test_any_text_is_a_glob_or_malformed(glob: str, text: str) -> None:
    try:
        matches(glob, text)
    except errors.ParseError as error:
        assert "\n" not in str(error)
