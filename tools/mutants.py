"""Mutation testing: do the tests see it when the code is wrong? ``python -m tools.mutants``.

Draws mutants by seed (mutmut's operators, inside of functions), and plays against each the fast
tests that run its line. Everything is imported and collected once: each mutant is a fork of this
process in which one function has the mutated code. What survives is printed as a difference.

A line of ``--out`` is the answer for one mutant; with the same file a later run goes on where an
earlier one ended. ``tools/equivalents.txt`` names the mutants that no test can tell, and why.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import coverage
import libcst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
EQUIVALENTS = ROOT / "tools/equivalents.txt"
_SCHEDULER = ("tests/unit/scheduler", "tests/unit/view")
_AGENT = ("tests/unit/agent", "tests/unit/accounting")
#: Room -> its files, and the tests that speak for it.
ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "queue": ("rte/scheduler/queue", _SCHEDULER),
    "loop": ("rte/scheduler/loop", _SCHEDULER),
    "cache": ("rte/scheduler/cache", _SCHEDULER),
    "observer": ("rte/agent/observer", _AGENT),
    "publisher": ("rte/agent/publisher", _AGENT),
    "liveness": ("rte/accounting/liveness.py", _AGENT),
    "watch": ("rte/kube/watch.py", ("tests/unit/kube",)),
    "lease": ("rte/kube/lease.py", ("tests/unit/kube",)),
    "leader": ("rte/scheduler/shell/leader.py", _SCHEDULER),
}
#: Tests of one mutant: how much slower they may be than with the right code, in CPU seconds, and
#: how long they may wait where the machine has no time for them.
_SLOWER, _LEAST_SECONDS, _PATIENCE = 5, 10, 4
_MEMORY = 8 << 30


@dataclass(frozen=True)
class Mutant:
    """One wrong program.

    Attributes:
        path: the file, from the root.
        line: the first that is changed.
        function: qualified name of the function that is changed.
        change: the lines that are changed, before (``-``) and after (``+``).
        source: the file with the change.
    """

    path: str
    line: int
    function: str
    change: tuple[str, ...]
    source: str

    @property
    def key(self) -> str:
        """The same for the same change, wherever its lines have moved."""
        return " | ".join([self.path, self.function, *self.change])


class _Places(libcst.CSTVisitor):
    """Every node that an operator changes, with its outermost function."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[libcst.CSTNode, str, list[libcst.CSTNode]]] = []
        self._names: list[str] = []
        self._function = ""

    def on_visit(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.Annotation | libcst.Decorator | libcst.Parameters):
            return False  # done when the module is imported
        if isinstance(node, libcst.Expr) and isinstance(node.value, libcst.BaseString):
            return False  # a docstring
        if isinstance(node, libcst.ClassDef | libcst.FunctionDef):
            self._names.append(node.name.value)
            if isinstance(node, libcst.FunctionDef) and not self._function:
                self._function = ".".join(self._names)
        elif self._function:
            made = [
                new
                for kind, operator in mutation_operators
                if isinstance(node, kind)
                for new in operator(node)
                if not _is_prose(node)
            ]
            if made:
                self.found.append((node, self._function, made))
        return True

    def on_leave(self, original_node: libcst.CSTNode) -> None:
        if isinstance(original_node, libcst.ClassDef | libcst.FunctionDef):
            if self._function == ".".join(self._names):
                self._function = ""
            self._names.pop()


def _is_prose(node: libcst.CSTNode) -> bool:
    """A text for people: how it is spelled is no behaviour."""
    return isinstance(node, libcst.SimpleString) and " " in node.value


def drawn(room: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants of a room: a place is drawn, then one of its changes; none twice."""
    chooser = random.Random(f"{seed} {room}")
    top = ROOT / ROOMS[room][0]
    places = []
    for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
        module = libcst.parse_module(path.read_text())
        visitor = _Places()
        module = MetadataWrapper(module, unsafe_skip_copy=True).visit(visitor)
        places += [(path, module, *one) for one in visitor.found]
    chooser.shuffle(places)
    found = []
    for path, module, node, function, changes in places:
        if len(found) == count:
            break
        new = chooser.choice(changes)
        source = module.deep_replace(node, new).code
        mutant = _mutant(path, module.code, source, function)
        if _fits(mutant, module.code):
            found.append(mutant)
    return found


def _mutant(path: Path, before: str, after: str, function: str) -> Mutant:
    old, new = before.splitlines(), after.splitlines()
    changed = [
        line
        for line in difflib.unified_diff(old, new, n=0, lineterm="")
        if line[:2] not in ("--", "++", "@@")
    ]
    first = next((n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    change = tuple(f"{line[0]} {' '.join(line[1:].split())}" for line in changed)
    return Mutant(str(path.relative_to(ROOT)), first + 1, function, change, after)


def _codes(source: str, path: str) -> dict[str, list[CodeType]]:
    """Qualified name -> the code objects of that name, in the order of the file."""
    found: dict[str, list[CodeType]] = {}
    waiting = [compile(source, str(ROOT / path), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop(0)
        found.setdefault(code.co_qualname, []).append(code)
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    return {
        name: sorted(codes, key=lambda one: one.co_firstlineno) for name, codes in found.items()
    }


def _pairs(mutant: Mutant, before: str) -> list[tuple[CodeType, CodeType]]:
    """The function's codes in the file (a property has several), and in the mutant."""
    old, new = _codes(before, mutant.path), _codes(mutant.source, mutant.path)
    return list(zip(old[mutant.function], new[mutant.function], strict=True))


def _fits(mutant: Mutant, before: str) -> bool:
    """Whether it is a program that can take the place of the function's."""
    try:
        pairs = _pairs(mutant, before)
    except (SyntaxError, ValueError):
        return False
    return bool(mutant.change) and all(old.co_freevars == new.co_freevars for old, new in pairs)


def plant(mutant: Mutant, functions: Sequence[FunctionType]) -> None:
    """The function has the mutated code from now on, wherever it is already known."""
    wanted = {
        (code.co_filename, code.co_qualname, code.co_firstlineno): new
        for code, new in _pairs(mutant, (ROOT / mutant.path).read_text())
    }
    for one in functions:
        code = one.__code__
        new = wanted.get((code.co_filename, code.co_qualname, code.co_firstlineno))
        if new is not None:
            one.__code__ = new


def _functions(files: Sequence[str]) -> list[FunctionType]:
    """Every function of these files that exists."""
    every = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
    return [one for one in every if one.__code__.co_filename in files]


class Player:
    """A pytest plugin that has the collected tests played once for each mutant.

    Attributes:
        answers: by mutant, ``killed NODEID``, ``timeout``, ``survived TESTS`` or ``not run``.
    """

    def __init__(self, mutants: Sequence[Mutant], out: Path | None, seconds: float) -> None:
        self.mutants = mutants
        self._seconds = seconds
        self.answers: dict[str, str] = {}
        self._out = out

    def pytest_configure(self) -> None:
        """A case that fails need not be made small."""
        import hypothesis  # which has to be imported by pytest first

        from tests.depth import scaled

        hypothesis.settings.register_profile(
            "mutants", max_examples=scaled(100), deadline=None, derandomize=True, database=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
        )  # fmt: skip
        os.environ["HYPOTHESIS_PROFILE"] = "mutants"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of pytest's own loop."""
        files = sorted({str(ROOT / mutant.path) for mutant in self.mutants})
        items = {item.nodeid: item for item in session.items}
        seconds, tests = self._covered(session, files)
        functions = _functions(files)
        gc.freeze()
        killers: Counter[str] = Counter()
        for mutant in self.mutants:
            names = _of_line(tests, mutant)
            chosen, total = [], 0.0
            for name in sorted(names, key=lambda one: (-killers[one], seconds[one])):
                if not chosen or total + seconds[name] <= self._seconds:
                    chosen.append(items[name])
                    total += seconds[name]
            answer = "not run"
            if chosen:
                answer = _played(session, chosen, partial(plant, mutant, functions), total)
            killers[answer.removeprefix("killed ")] += 1
            self.answers[mutant.key] = (
                f"{answer} of {len(names)}" if "survived" in answer else answer
            )
            print(f"{mutant.path}:{mutant.line} {answer}", file=sys.__stdout__, flush=True)
            if self._out is not None:
                told = {"mutant": mutant.key, "line": mutant.line, "answer": answer}
                with self._out.open("a") as file:
                    file.write(json.dumps(told) + "\n")
        return True

    def _covered(
        self, session: pytest.Session, files: Sequence[str]
    ) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Each test's CPU seconds, and for each line those that run it; kept for the same tree."""
        told = _kept([*session.config.args, *files])
        if not told.exists():
            told.parent.mkdir(parents=True, exist_ok=True)
            if (child := os.fork()) == 0:
                _alone(partial(_cover, session, files, told))
            _, status = os.waitpid(child, 0)
            if status:
                raise pytest.UsageError("the tests do not pass by themselves: run them first")
        known: dict[str, Any] = json.loads(told.read_text())
        return known["seconds"], known["tests"]


def _kept(words: Sequence[str]) -> Path:
    """The file for what this tree's tests run, among these words."""
    digest = hashlib.sha256(repr(words).encode())
    for path in sorted([*ROOT.glob("rte/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        digest.update(path.read_bytes())
    return ROOT / f".cache/mutants/{digest.hexdigest()[:16]}.json"


def _of_line(tests: dict[str, list[str]], mutant: Mutant) -> list[str]:
    """The tests that run the line; a constant inside of a longer statement has none of its own."""
    start = min(
        code.co_firstlineno
        for code, _ in _pairs(mutant, (ROOT / mutant.path).read_text())
        if code.co_firstlineno <= mutant.line
    )
    lines = range(mutant.line, start, -1)
    return next(filter(None, (tests.get(f"{mutant.path}:{line}") for line in lines)), [])


def _cover(session: pytest.Session, files: Sequence[str], out: Path) -> int:
    measured = coverage.Coverage(data_file=None, config_file=False, include=list(files))
    measured._warn_no_data = False  # noqa: SLF001 - it has no public name
    seconds = {}
    measured.start()
    for item, following in _with_next(session.items):
        measured.switch_context(item.nodeid)
        begun = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = time.process_time() - begun
    measured.stop()
    data = measured.get_data()
    tests = {
        f"{Path(file).relative_to(ROOT)}:{line}": [name for name in names if name in seconds]
        for file in data.measured_files()
        for line, names in data.contexts_by_lineno(file).items()
    }
    if not session.testsfailed:
        out.write_text(json.dumps({"seconds": seconds, "tests": tests}))
    return min(session.testsfailed, 1)


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _alone(act: Any) -> None:
    """The life of a forked process: nothing of it is seen, and it ends here."""
    status = 2
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        status = act()
    finally:
        os._exit(status)


def _played(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    go_wrong: Callable[[], None],
    total: float,
) -> str:
    limit = round(_SLOWER * total + _LEAST_SECONDS)
    ours, theirs = os.pipe()

    def play() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE * limit)
        go_wrong()
        for item, following in _with_next(items):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os.write(theirs, item.nodeid.encode())
                return 1
        return 0

    if (child := os.fork()) == 0:
        _alone(play)
    os.close(theirs)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # programs that its tests have started
    with os.fdopen(ours) as pipe:
        killer = pipe.read()
    if os.WIFSIGNALED(status):
        return "timeout"
    return f"survived {len(items)}" if status == 0 else f"killed {killer}"


def equivalents() -> dict[str, str]:
    """Mutants that no test can tell from the right program -> why."""
    found = {}
    for block in EQUIVALENTS.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            found[" | ".join(lines[1:])] = lines[0]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, play, tell. Exit code 1 where less than ``--bar`` of them are killed."""
    parser = argparse.ArgumentParser(prog="tools.mutants", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=400, help="mutants in all, as many from each line of code")
    add("--seed", type=int, default=1)
    add("--room", action="append", choices=ROOMS, help="only of this room (may be repeated)")
    add("--only", default="", metavar="TEXT", help="only mutants whose description has this text")
    add("--tests", action="append", metavar="PATH", help="play these and not the room's tests")
    add("--out", type=Path, metavar="FILE", help="answers, one a line; those in it are not played")
    add("--list", action="store_true", help="print the mutants that would be played")
    add("--seconds", type=float, default=15, help="of the line's tests the quickest, for so long")
    add("--bar", type=float, default=0.9, help="share of the mutants that have to be killed")
    args = parser.parse_args(argv)
    rooms = args.room or list(ROOMS)
    sizes = {room: _lines(room) for room in rooms}
    before = _answered(args.out)
    answers: dict[str, str] = {}
    of_tests: dict[tuple[str, ...], list[Mutant]] = {}
    known: dict[str, Mutant] = {}
    for room in rooms:
        share = max(1, round(args.count * sizes[room] / sum(sizes.values())))
        for mutant in drawn(room, share, args.seed):
            if args.only in mutant.key:
                known[mutant.key] = mutant
                if mutant.key in before:
                    answers[mutant.key] = before[mutant.key]
                else:
                    of_tests.setdefault(tuple(args.tests or ROOMS[room][1]), []).append(mutant)
    if args.list:
        print("\n\n".join(key.replace(" | ", "\n") for key in known))
        return 0
    for tests, mutants in of_tests.items():
        answers |= _play(tests, mutants, args.out, args.seconds)
    return _tell(answers, known, args.bar)


def _lines(room: str) -> int:
    top = ROOT / ROOMS[room][0]
    paths = [top] if top.is_file() else sorted(top.rglob("*.py"))
    return sum(path.read_text().count("\n") for path in paths)


def _answered(out: Path | None) -> dict[str, str]:
    if out is None or not out.exists():
        return {}
    return {one["mutant"]: one["answer"] for one in map(json.loads, out.read_text().splitlines())}


def _play(
    tests: Sequence[str], mutants: Sequence[Mutant], out: Path | None, seconds: float
) -> dict[str, str]:
    player = Player(mutants, out, seconds)
    flags = ["-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
    status = pytest.main([*flags, *(str(ROOT / path) for path in tests)], plugins=[player])
    if len(player.answers) < len(mutants):
        raise SystemExit(f"mutants: pytest ended with {status}")
    return player.answers


def _tell(answers: dict[str, str], known: dict[str, Mutant], bar: float) -> int:
    equal = equivalents()
    counts = Counter(
        "equivalent" if key in equal else answer.split()[0] for key, answer in answers.items()
    )
    for key, answer in answers.items():
        if answer.split()[0] in ("survived", "not") and key not in equal:
            print(f"\n{known[key].path}:{known[key].line} {answer}")
            print("\n".join(key.split(" | ")[1:]))
    detected = counts["killed"] + counts["timeout"]
    different = len(answers) - counts["equivalent"]
    told = {
        "killed": counts["killed"],
        "stopped for their time": counts["timeout"],
        "survived": counts["survived"],
        "in lines that no test runs": counts["not"],
        "equivalent": counts["equivalent"],
    }
    print(f"\n{len(answers)} mutants:", ", ".join(f"{n} {what}" for what, n in told.items()))
    print(f"{detected / max(1, different):.1%} of the {different} that differ were found")
    return int(detected < bar * different)


if __name__ == "__main__":
    sys.exit(main())
