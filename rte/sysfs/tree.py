"""Reading files below a root that stands for /sys or /proc, without ever leaving it."""

# Thousands of small reads: pathlib would take most of the time.
# ruff: noqa: PTH115
from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import TYPE_CHECKING, TypeVar

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    T = TypeVar("T")

MAX_FILE_BYTES = 16 << 20
MAX_LINKS = 16
_PAGE = 4096
#: Small enough for memory that the allocator has at hand; fresh pages cost more than more reads.
_PIECE = 1 << 16

# O_NONBLOCK: a capture may hold a FIFO where the kernel has a file; it must not hang us.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Machines in files are also looked at on systems without O_PATH, as macOS is.
_DIRECTORY_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)


class Tree:
    """A directory that stands for ``mount`` (``/sys`` or ``/proc``).

    Paths are relative to it. Symbolic links are followed only inside it: an absolute target below
    ``mount`` means the same place below the root, any other target outside counts as missing.
    A directory's place is remembered, so a Tree serves one reading and is then dropped.
    """

    def __init__(self, root: Path, mount: str) -> None:
        self.mount = mount
        self._root = os.fspath(root)
        # sysfs hands out an attribute in one piece, /proc in pieces of any size.
        self._read_text = _read_attribute if mount == "/sys" else _read_all
        self._places: dict[str, str | None] = {"": ""}

    def read(self, path: str) -> str | None:
        """The text of a file (its first 16 MiB), None if it is missing or unreadable."""
        parent, _, name = path.rpartition("/")
        return self.read_in(parent, name)

    def read_in(self, directory: str, name: str) -> str | None:
        """The text of a file in a directory, as :meth:`read`."""
        return self.use(directory, name, self._read_text)

    def read_together(self, directory: str, *names: str) -> list[str | None]:
        """Files of a directory that is not read otherwise, each as :meth:`read`; quicker."""
        parent, _, last = directory.rpartition("/")
        place = self._places.get(parent) or self._place(parent)
        if place is None:
            return [None] * len(names)
        try:
            here = os.open(f"{self._root}/{place}/{last}", _DIRECTORY_FLAGS)
        except OSError:  # there is none, or it is behind a link
            return [self.read_in(directory, name) for name in names]
        texts: list[str | None] = []
        try:
            for name in names:
                try:
                    fd = os.open(name, _FLAGS, dir_fd=here)
                except OSError as error:
                    linked = error.errno == errno.ELOOP
                    texts.append(self.read_in(directory, name) if linked else None)
                else:
                    texts.append(_take(fd, self._read_text))
        finally:
            os.close(here)
        return texts

    def use(
        self, directory: str, name: str, reader: Callable[[int], T], links: int = 0
    ) -> T | None:
        """What ``reader`` makes of the open file (its descriptor), None as in :meth:`read`."""
        place = self._places.get(directory) or self._place(directory)
        if place is None:
            return None
        try:
            fd = os.open(f"{self._root}/{place}/{name}", _FLAGS)
        except OSError as error:
            target = self._target(place, name) if error.errno == errno.ELOOP else None
            if target is None or links + 1 == MAX_LINKS:
                return None
            parent, _, name = target.rpartition("/")
            return self.use(parent, name, reader, links + 1)
        return _take(fd, reader)

    def names(self, path: str) -> list[str]:
        """Sorted names in a directory; none if it is missing or unreadable."""
        place = self._place(path)
        if place is None:
            return []
        found, places = [], self._places
        try:
            with os.scandir(f"{self._root}/{place}") as entries:
                for entry in entries:
                    name = entry.name
                    found.append(name)
                    # The listing tells directories for nothing; asking for each costs a call.
                    if entry.is_dir(follow_symlinks=False):
                        inside = f"{place}/{name}"
                        places[inside if path == place else f"{path}/{name}"] = inside
        except OSError:
            return []
        found.sort()
        return found

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory, or a link to one inside the root."""
        return self._place(path) is not None

    def resolve(self, path: str) -> str | None:
        """The path of a directory with every link resolved, None if there is none."""
        return self._place(path)

    def link(self, path: str) -> str | None:
        """The text of a symbolic link, dangling or not; None if the path is none."""
        parent, _, name = path.rpartition("/")
        place = self._place(parent)
        if place is None:
            return None
        try:
            return os.readlink(f"{self._root}/{place}/{name}")
        except (OSError, ValueError):
            return None

    def _place(self, path: str, links: int = 0) -> str | None:
        if path in self._places:
            return self._places[path]
        parent, _, name = path.rpartition("/")
        place = self._places.get(parent) or self._place(parent, links)
        found: str | None = None
        if place is not None:
            inside = f"{place}/{name}" if place else name
            try:
                mode = os.lstat(f"{self._root}/{inside}").st_mode
            except (OSError, ValueError):
                mode = 0
            if stat.S_ISDIR(mode):
                found = inside
            elif stat.S_ISLNK(mode) and links < MAX_LINKS:
                target = self._target(place, name)
                found = None if target is None else self._place(target, links + 1)
        self._places[path] = found
        return found

    def _target(self, place: str, name: str) -> str | None:
        try:
            text = os.readlink(f"{self._root}/{place}/{name}")
        except (OSError, ValueError):
            return None
        if text.startswith("/"):
            inside = posixpath.normpath(text)
            if not inside.startswith(f"{self.mount}/"):
                return None
            return inside[len(self.mount) + 1 :]
        inside = posixpath.normpath(posixpath.join(place, text))
        return None if inside.startswith("..") or inside == "." else inside


class Notes:
    """Collects what was missing and what stood in for it; files of many CPUs share one line."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], list[str]] = {}

    def add(self, file: str, consequence: str, member: str = "") -> None:
        """``file`` was of no use, so ``consequence``; ``member`` names one of many such files."""
        members = self._members.setdefault((file, consequence), [])
        if member:
            members.append(member)

    def lines(self) -> tuple[str, ...]:
        """One line for each kind of file and consequence, in the order of discovery."""
        return tuple(
            f"{file}{f' ({_shorten(members)})' if members else ''}: {consequence}"
            for (file, consequence), members in self._members.items()
        )


def parse(text: str | None, parser: Callable[[str], T]) -> T | None:
    """``parser(text)``; None where there is no text or it does not follow its format."""
    if text is None:
        return None
    try:
        return parser(text)
    except errors.ParseError:
        return None


def parse_int(text: str) -> int:
    """A decimal integer of at most 18 digits, as sysfs writes it.

    Raises:
        errors.ParseError: anything else.
    """
    bare = text.strip(" \t\r\n\0")
    digits = bare.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise errors.ParseError("number", text)
    return int(bare)


def parse_id(text: str | None) -> int | None:
    """An id; None if it is missing, damaged or negative (not told)."""
    value = parse(text, parse_int)
    return None if value is None or value < 0 else value


def text_of(tree: Tree, path: str) -> str:
    """The text of a file without what surrounds it; ``""`` for one that cannot be shown."""
    text = (tree.read(path) or "").strip(" \t\r\n\0")
    return text if text.isprintable() else ""


def pieces(fd: int) -> Iterator[bytes]:
    """An open file's first 16 MiB, in pieces that end anywhere."""
    left = MAX_FILE_BYTES
    while left > 0 and (data := os.read(fd, min(left, _PIECE))):
        yield data
        left -= len(data)


def _read_attribute(fd: int) -> str:
    data = os.read(fd, _PAGE)
    if len(data) == _PAGE:
        data = b"".join((data, *pieces(fd)))
    return data.decode("utf-8", "replace")


def _read_all(fd: int) -> str:
    return b"".join(pieces(fd)).decode("utf-8", "replace")


def _take(fd: int, reader: Callable[[int], T]) -> T | None:
    """What ``reader`` makes of an open file, None if it cannot be read; closes it."""
    try:
        return reader(fd)
    except OSError:
        return None
    finally:
        os.close(fd)


def _shorten(members: list[str]) -> str:
    shown = ", ".join(members[:8])
    return shown if len(members) <= 8 else f"{shown} and {len(members) - 8} more"
