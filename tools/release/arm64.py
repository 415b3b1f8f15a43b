"""Images for arm64, put together out of those for amd64 without running anything of arm64.

What is a program comes from Debian's packages and from the wheels for arm64, of the versions that
the image for amd64 has; all else (Python's text and byte code, certificates, settings) is the same
on both. Each program is looked at: none of amd64 may be left, and what it links to must be there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.cluster import builder
from tools.release import packs
from tools.release.parts import ReleaseError, run

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of an image: name -> what it is, and its contents where it is a file.
Tree = dict[str, tuple[tarfile.TarInfo, bytes]]
FROM, TO = "x86_64-linux-gnu", "aarch64-linux-gnu"
LOADER = "usr/lib/ld-linux-aarch64.so.1"
STATUS = "var/lib/dpkg/status"
#: Where an image keeps the list of what it is made of (Dockerfile).
LIST = "opt/rte/sbom.cdx.json"
#: The loader's list of amd64's libraries, and its place; without a list it looks where they are.
DROPPED = ("etc/ld.so.cache", "lib64", "usr/lib64", "usr/lib64/ld-linux-x86-64.so.2")
#: ELF's e_machine.
_AARCH64 = 183
#: glibc's of Debian 12, and all before it.
_PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)]


def read(layer: bytes) -> Tree:
    """A layer as a registry sends it."""
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            tree[entry.name] = entry, file.read() if file else b""
    return tree


def written(tree: Tree) -> bytes:
    """The layer, not packed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(tree):
            entry, content = tree[name]
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def crossed(
    tree: Tree, debian: Mapping[str, bytes], wheels: Mapping[str, Mapping[str, bytes]], records: str
) -> Tree:
    """The tree for arm64.

    Args:
        tree: that for amd64.
        debian: name -> contents of the files in Debian's packages for arm64.
        wheels: canonical name of a package -> name -> contents, for arm64.
        records: what dpkg's status says of Debian's packages for arm64.

    Raises:
        ReleaseError: a file has no counterpart, a program of amd64 is left, or a library is not
            there that one of arm64 links to.
    """
    (site,) = {
        found[0] for name in tree if (found := re.match(r"opt/rte/lib/[^/]+/site-packages/", name))
    }
    theirs = {
        f"{site}{name}": content
        for files in wheels.values()
        for name, content in files.items()
        if "tests" not in PurePosixPath(name).parts
    }
    replaced = {name for each in wheels for name in _files_of(tree, site, each)}
    # Byte code is good for the text of which it was made, and for no other.
    changed = {name for name in replaced if theirs.get(name) != tree[name][1]}
    made: Tree = {}
    for name, (entry, content) in tree.items():
        if name in DROPPED or name in replaced or _source(name) in changed:
            continue
        if FROM in name and name.endswith(".pyc"):
            continue
        there, new = name.replace(FROM, TO), content
        if entry.isfile() and (content[:4] == b"\x7fELF" or there != name):
            new = _counterpart(debian, there)
        elif name == STATUS:
            new = records.encode()
        elif name == LIST:
            new = content.replace(b"?arch=amd64", b"?arch=arm64")
        made[there] = _entry(entry, there, new), new
    model = next(entry for entry, _ in tree.values() if entry.isfile())
    for name, content in {**theirs, LOADER: _counterpart(debian, LOADER)}.items():
        made[name] = _entry(model, name, content), content
        made[name][0].mode = 0o755 if name == LOADER else 0o644
    _check(made)
    return made


def _files_of(tree: Tree, site: str, package: str) -> list[str]:
    """What pip has put into the environment for a package, but its commands."""
    for name in tree:
        folder, _, file = name.removeprefix(site).partition("/")
        if file == "RECORD" and canonicalize_name(folder.partition("-")[0]) == package:
            listed = tree[name][1].decode().splitlines()
            files = [site + line.rsplit(",", 2)[0].strip('"') for line in listed]
            return [each for each in files if each in tree]
    raise ReleaseError(f"the image for amd64 has no {package}, which is locked")


def _source(name: str) -> str:
    """Of what text a file is the byte code, as Python's cache of its own tree has it."""
    found = re.fullmatch(r"opt/rte/bytecode/(.*)\.cpython-[^/]+\.pyc", name)
    return f"{found[1]}.py" if found else ""


def _counterpart(debian: Mapping[str, bytes], name: str) -> bytes:
    for each in (name, name.removeprefix("usr/")):
        if each in debian:
            return debian[each]
    raise ReleaseError(f"no package of Debian for arm64 has {name}")


def _entry(model: tarfile.TarInfo, name: str, content: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = model.type, model.mode, model.linkname
    entry.size, entry.mtime = len(content), packs.EPOCH
    return entry


def _check(tree: Tree) -> None:
    names = {PurePosixPath(name).name for name in tree}
    with tempfile.NamedTemporaryFile() as file:
        for name, (_, content) in tree.items():
            if content[:4] != b"\x7fELF":
                continue
            if struct.unpack_from("<H", content, 18)[0] != _AARCH64:
                raise ReleaseError(f"{name} is not a program of arm64")
            Path(file.name).write_bytes(content)
            needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", file.name))
            if missing := sorted(set(needed) - names):
                raise ReleaseError(f"{name} needs {', '.join(missing)}, which the image lacks")


# --- what is fetched -----------------------------------------------------------------------------


def packages(status: str) -> dict[str, str]:
    """dpkg's records: package -> version."""
    return {
        found["Package"]: found["Version"]
        for record in status.strip().split("\n\n")
        for found in [dict(re.findall(r"(?m)^(Package|Version): (.+)$", record))]
    }


def debian_files(wanted: Mapping[str, str]) -> tuple[dict[str, bytes], str]:
    """Those of Debian's packages for arm64, fetched where the cache lacks them; and their records.

    Raises:
        ReleaseError: a version is not to be had, or there is no network.
    """
    folder = builder.cache_dir() / "debian-arm64"
    lacking = {name: version for name, version in wanted.items() if not _deb(folder, name, version)}
    if lacking:
        _fetch_debian(folder, lacking)
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    records = []
    for name, version in sorted(wanted.items()):
        deb = _deb(folder, name, version)
        if deb is None:
            raise ReleaseError(f"{name} {version} for arm64 did not come: is the base's list old?")
        told = run("dpkg-deb", "-f", deb).strip()
        first, _, rest = told.partition("\n")
        records.append(f"{first}\nStatus: install ok installed\n{rest}\n")
        content = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for entry in archive:
                where = entry.name.removeprefix("./")
                if file := archive.extractfile(entry) if entry.isfile() else None:
                    files[where] = file.read()
                elif entry.issym():
                    target = PurePosixPath("/", where).parent / entry.linkname
                    links[where] = str(target).lstrip("/")
    for link in links:
        end = link
        for _ in range(8):  # links to links
            end = links.get(end, end)
        if end in files:
            files[link] = files[end]
    return files, "\n".join(records)


def _deb(folder: Path, name: str, version: str) -> Path | None:
    found = list(folder.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
    return found[0] if found else None


def _fetch_debian(folder: Path, wanted: Mapping[str, str]) -> None:
    """By apt, with lists of its own; this system's are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rte-apt-") as name:
        settings = Path(name) / "apt.conf"
        settings.write_text(
            f'Dir::State "{name}"; Dir::Cache "{name}"; Dir::State::status "/dev/null";\n'
            'APT::Architecture "arm64"; APT::Architectures {"arm64";};\n'
            'APT::Sandbox::User "root";\n'
        )
        run("apt-get", "update", "-q", APT_CONFIG=str(settings))
        asked = [f"{package}={version}" for package, version in wanted.items()]
        run("apt-get", "download", "-q", *asked, cwd=folder, APT_CONFIG=str(settings))


def wheel_files(requirements: Path, python: str) -> dict[str, dict[str, bytes]]:
    """Locked packages that have something of arm64: canonical name -> name -> contents.

    Raises:
        ReleaseError: one is not to be had for arm64, or there is no network.
    """
    folder = builder.cache_dir() / "wheels-arm64"
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    with tempfile.TemporaryDirectory(prefix="rte-wheels-") as name:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
            "--only-binary", ":all:", "--python-version", python, "--implementation", "cp",
            *platforms, "--platform", "manylinux2014_aarch64", "--requirement", requirements,
            "--dest",
        ]  # fmt: skip
        try:
            run(*command, name, "--no-index", "--find-links", folder)
        except ReleaseError:
            run(*command, folder)
            run(*command, name, "--no-index", "--find-links", folder)
        found: dict[str, dict[str, bytes]] = {}
        for path in sorted(Path(name).glob("*.whl")):
            package, _, _, tags = parse_wheel_filename(path.name)
            if all(tag.platform == "any" for tag in tags):
                continue
            with zipfile.ZipFile(path) as wheel:
                found[package] = {
                    each: wheel.read(each)
                    for each in wheel.namelist()
                    if not each.endswith("/") and ".data/" not in each
                }
    return found


# --- the whole image -----------------------------------------------------------------------------


def fetched(
    tree: Tree, requirements: Path
) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]], str]:
    """Debian's files, the wheels' files and dpkg's records for arm64, for the tree for amd64.

    Raises:
        ReleaseError: as :func:`debian_files` and :func:`wheel_files`.
    """
    (python,) = {
        found[1] for name in tree if (found := re.fullmatch(r"usr/bin/python(3\.\d+)", name))
    }
    files, records = debian_files(packages(tree[STATUS][1].decode()))
    return files, wheel_files(requirements, python), records


def image(layer: bytes, config: bytes, requirements: Path) -> tuple[bytes, bytes, Tree]:
    """Layer and settings for arm64, and what is in the layer, by those for amd64.

    Raises:
        ReleaseError: as :func:`crossed` and :func:`fetched`.
    """
    tree = read(layer)
    made = crossed(tree, *fetched(tree, requirements))
    content = written(made)
    told = json.loads(config)
    told |= {"architecture": "arm64", "variant": "v8"}
    told["rootfs"] = {
        "type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"],
    }  # fmt: skip
    told["history"] = [{"created": told["created"], "comment": "put together by tools.release"}]
    return gzip.compress(content, 6, mtime=0), json.dumps(told, sort_keys=True).encode(), made
