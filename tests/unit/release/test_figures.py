"""``python -m tools.figures``: no benchmark that the documentation quotes is left out of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import EVERY_PAGE
from tools import figures
from tools.figures import FIGURES, Figure

ROOT = Path(__file__).parents[3]


def test_every_benchmark_that_a_page_quotes_is_measured() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    quoted = {name for page in pages for name in re.findall(r"\bbench\.[a-z_]+", page.read_text())}
    assert len(quoted) > 8
    assert quoted <= {figure.bench for figure in FIGURES}


#: A number with a unit in which speed, memory or a comparison is told.
FIGURE = re.compile(r"\d[\d.,]* (?:ms|µs|MiB|GiB|times)\b|\d+ % of\b|\bmedian\b|\bp(?:50|99)\b")
#: What else measures: a part of the tests, the release itself, a command that the text has.
MEASURES = re.compile(r"\bbench\.[a-z_]+|`tests/[a-z_/]+(?:\.py)?`|`tools\.release`")
#: page -> figures of it that nobody measures: limits, settings, examples of input.
SETTINGS = {
    "docs/fit.md": {"1 GiB"},
    "docs/groups.md": {"90 % of"},
    "docs/operations.md": {"100 ms", "1 MiB", "20 ms", "4 MiB", "5 times", "8 MiB"},
    "docs/placement.md": {"1 GiB", "16 GiB"},
    "docs/scheduler.md": {"20 times", "50 ms"},
    "docs/view.md": {"32 MiB"},
}
#: page -> figures of an example whose command stands above them.
EXAMPLES = {"docs/fit.md": {"1,103 times"}}


def unmeasured(text: str) -> set[str]:
    """The figures of sections that do not say what measures them."""
    return {
        figure
        for section in re.split(r"(?m)^(?=##+ )", re.sub(r"(?ms)^```.*?^```$", "", text))
        if not MEASURES.search(section)
        for figure in FIGURE.findall(section)
    }


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_figure_of_a_page_stands_beside_what_measures_it(page: str) -> None:
    known = SETTINGS.get(page, set()) | EXAMPLES.get(page, set())
    assert unmeasured((ROOT / page).read_text()) == known


def test_a_figure_without_its_benchmark_is_found() -> None:
    told = "## One\n\ndecides in 1.5 ms\n\n## Two\n\n3 ms (`bench.reading`)\n"
    assert unmeasured(told) == {"1.5 ms"}


def test_every_benchmark_is_there_and_takes_its_flags() -> None:
    for figure in FIGURES:
        source = (ROOT / f"{figure.bench.replace('.', '/')}.py").read_text()
        for flag in re.findall(r"--[a-z-]+", figure.flags):
            assert f'"{flag}"' in source, (figure.bench, flag)


@pytest.fixture
def printing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A benchmark of that name prints a text and ends with that code."""

    def make(text: str, code: int = 0) -> Figure:
        (tmp_path / "planted.py").write_text(f"import sys\nprint({text!r})\nsys.exit({code})\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return Figure("planted")

    return make


def test_what_it_prints_becomes_a_table_with_the_load(printing) -> None:
    figure = printing('{"subject": "a|b", "ms": 1.23456}\nprose\n{"subject": "c", "n": 7}')
    text, good = figures.measured(figure)
    assert good
    assert "load" in text
    assert text.endswith(
        "| subject | ms | n |\n| --- | --- | --- |\n| a\\|b | 1.235 |  |\n| c |  | 7 |\n"
    )


@pytest.mark.parametrize(("text", "code"), [('{"a": 1}', 3), ("no figures", 0)])
def test_one_that_fails_says_so_and_gives_no_table(printing, text: str, code: int) -> None:
    told, good = figures.measured(printing(text, code))
    assert not good
    assert f"It failed ({code})" in told
    assert "| ---" not in told
