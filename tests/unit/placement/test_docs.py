"""The page about the library does what it shows."""

import doctest
from pathlib import Path


def test_examples_of_the_placement_page():
    page = Path(__file__).parents[3] / "docs" / "placement.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 30
    assert failed == 0
