"""Images for arm64 are those for amd64 with every program in the place of which one of arm64 is."""

from __future__ import annotations

import struct
import tarfile

import pytest

from tools.release import arm64
from tools.release.parts import ReleaseError

SITE = "opt/rte/lib/python3.11/site-packages/"
BYTECODE = "opt/rte/bytecode/"


def program(machine: int) -> bytes:
    """The head of an ELF file, which links to nothing."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, machine, 1) + bytes(40)


AMD64, ARM64 = program(62), program(183)
LISTED = ("__init__.py", "one.py", "core.x86_64-linux-gnu.so")
RECORD = "".join(f"fast/{name},,\n" for name in LISTED) + "fast-1.dist-info/RECORD,,\n"
FILES = {
    "usr/bin/python3.11": AMD64,
    "usr/lib/x86_64-linux-gnu/libc.so.6": AMD64,
    "usr/lib64/ld-linux-x86-64.so.2": AMD64,
    "usr/lib/python3.11/os.py": b"same",
    "etc/ld.so.cache": b"amd64's",
    arm64.STATUS: b"Package: libc6\nArchitecture: amd64\nVersion: 2.36-9\n",
    arm64.LIST: b'{"purl": "pkg:deb/debian/libc6@2.36-9?arch=amd64"}',
    f"{SITE}fast/__init__.py": b"both",
    f"{SITE}fast/one.py": b"for amd64",
    f"{SITE}fast/core.x86_64-linux-gnu.so": AMD64,
    f"{SITE}fast-1.dist-info/RECORD": RECORD.encode(),
    f"{SITE}slow/__init__.py": b"pure",
    f"{BYTECODE}{SITE}fast/__init__.cpython-311.opt-2.pyc": b"of both",
    f"{BYTECODE}{SITE}fast/one.cpython-311.opt-2.pyc": b"of amd64's",
}
DEBIAN = {
    "usr/bin/python3.11": ARM64,
    "lib/aarch64-linux-gnu/libc.so.6": ARM64,
    "lib/ld-linux-aarch64.so.1": ARM64,
}
WHEELS = {
    "fast": {
        "fast/__init__.py": b"both",
        "fast/one.py": b"for arm64",
        "fast/core.aarch64-linux-gnu.so": ARM64,
        "fast/tests/big.py": b"left out",
        "fast-1.dist-info/RECORD": b"its own",
    }
}


def tree(files: dict[str, bytes]) -> arm64.Tree:
    made = {}
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o755 if content == AMD64 else 0o644
        made[name] = entry, content
    return made


def crossed(**other: dict[str, bytes]) -> dict[str, bytes]:
    made = arm64.crossed(
        tree(FILES | other.get("files", {})), DEBIAN, other.get("wheels", WHEELS), "records"
    )
    return {name: content for name, (_, content) in made.items()}


def test_programs_are_arm64s_and_all_else_is_the_same() -> None:
    assert crossed() == {
        "usr/bin/python3.11": ARM64,
        "usr/lib/aarch64-linux-gnu/libc.so.6": ARM64,
        arm64.LOADER: ARM64,
        "usr/lib/python3.11/os.py": b"same",
        arm64.STATUS: b"records",
        arm64.LIST: b'{"purl": "pkg:deb/debian/libc6@2.36-9?arch=arm64"}',
        **{SITE + name: content for name, content in WHEELS["fast"].items() if "tests" not in name},
        f"{SITE}slow/__init__.py": b"pure",
        f"{BYTECODE}{SITE}fast/__init__.cpython-311.opt-2.pyc": b"of both",
    }


def test_it_is_the_same_twice_and_programs_may_be_run() -> None:
    made = [arm64.written(arm64.crossed(tree(FILES), DEBIAN, WHEELS, "records")) for _ in range(2)]
    assert made[0] == made[1]
    entries = arm64.crossed(tree(FILES), DEBIAN, WHEELS, "records")
    assert {entries[name][0].mode for name in ("usr/bin/python3.11", arm64.LOADER)} == {0o755}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"files": {"usr/lib/x86_64-linux-gnu/libz.so.1": AMD64}}, "no package of Debian .*libz"),
        ({"wheels": {}}, "no package of Debian .*core.aarch64-linux-gnu.so"),
        ({"wheels": {**WHEELS, "absent": {}}}, "no absent, which is locked"),
        (
            {"wheels": {"fast": {**WHEELS["fast"], "fast/more.so": AMD64}}},
            "more.so is not a program of arm64",
        ),
    ],
)
def test_what_would_not_run_is_no_image(other: dict, told: str) -> None:
    with pytest.raises(ReleaseError, match=told):
        crossed(**other)


def test_versions_are_those_of_dpkgs_records() -> None:
    status = "Package: libc6\nVersion: 2.36-9\nDepends: a\n\nPackage: zlib1g\nVersion: 1:1.2\n"
    assert arm64.packages(status) == {"libc6": "2.36-9", "zlib1g": "1:1.2"}
