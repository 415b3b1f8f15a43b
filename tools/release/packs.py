"""Archives whose bytes depend on their contents alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: Of every file: the Dockerfile's SOURCE_DATE_EPOCH.
EPOCH = 1767225600


def tar(files: Mapping[str, bytes], executable: Iterable[str] = ()) -> bytes:
    """Name -> contents, as a tar of files alone."""
    executable = set(executable)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), EPOCH
            entry.mode = 0o755 if name in executable else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return out.getvalue()


def tar_gz(files: Mapping[str, bytes], executable: Iterable[str] = ()) -> bytes:
    """The same, packed; gzip's header has no time."""
    return gzip.compress(tar(files, executable), mtime=0)


def below(folder: Path, prefix: str) -> dict[str, bytes]:
    """Name -> contents of a folder's files; what is linked comes as what it is linked to."""
    return {
        f"{prefix}/{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def sha256(content: bytes) -> str:
    """Hexadecimal."""
    return hashlib.sha256(content).hexdigest()
