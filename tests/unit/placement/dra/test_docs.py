"""The page about devices does what it shows."""

import doctest
from pathlib import Path


def test_examples_of_the_page_about_devices():
    page = Path(__file__).parents[4] / "docs" / "dra.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 20
    assert failed == 0
