"""A cluster's objects in one file: a tar of JSON lists, as ``rte snapshot --cluster`` writes it.

It may come from anybody. Nothing of it reaches the disk, only plain files count, and the budget is
held against what decompression yields while it yields it.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from typing import TYPE_CHECKING

from rte import errors
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.reader.json import JsonObject
    from rte.reader.jsontext import ReadBudget

_GZIP, _ZSTD, _TAR = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"ustar"
_BLOCK = 512
_CHUNK = 1 << 20
#: Memory that the frame of a zstd file may ask for.
_MOST_WINDOW = 1 << 27
_MOST_MEMBERS = 64
_NAME = re.compile(r"(\./)?[a-z0-9][a-z0-9.-]{0,80}\.json")


def is_archive(content: bytes) -> bool:
    """Whether a file is an archive, by its first bytes, and no text."""
    return content.startswith((_GZIP, _ZSTD)) or content[257:262] == _TAR


def objects(content: bytes, bounds: ReadBudget = jsontext.ARCHIVE) -> Iterator[JsonObject]:
    """All objects of an archive, in its order.

    Raises:
        errors.MalformedError: it is not what ``rte snapshot --cluster`` writes, or is too much.
    """
    data, place = _decompressed(content, bounds), 0
    for _ in range(_MOST_MEMBERS):
        block = data[place : place + _BLOCK]
        if len(block) == _BLOCK and not any(block):
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.TarError, UnicodeDecodeError) as error:
            raise _malformed(f"its table of contents is broken ({error})") from None
        begin = place + _BLOCK
        if not header.isreg() or not _NAME.fullmatch(header.name):
            kind = "link" if header.islnk() or header.issym() else "member"
            raise _malformed(f"it holds a {kind} {header.name[:80]!r}")
        if not 0 <= header.size <= len(data) - begin:
            raise _malformed(f"{header.name} ends too early")
        listed = jsontext.load(data[begin : begin + header.size], header.name, bounds)
        if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
            raise _malformed(f"{header.name} is no list of objects")
        yield from listed
        place = begin + -(-header.size // _BLOCK) * _BLOCK
    raise _malformed(f"it has more than {_MOST_MEMBERS} members")


def _decompressed(content: bytes, bounds: ReadBudget) -> bytes:
    import zstandard  # here: the agent does without

    stream: gzip.GzipFile | zstandard.ZstdDecompressionReader | io.BytesIO
    if content.startswith(_GZIP):
        stream = gzip.GzipFile(fileobj=io.BytesIO(content))
    elif content.startswith(_ZSTD):
        reader = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        stream = reader.stream_reader(content, read_across_frames=True)
    else:
        stream = io.BytesIO(content)
    out = bytearray()
    try:
        while chunk := stream.read(_CHUNK):
            out += chunk
            if len(out) > bounds.size:
                raise _malformed(f"it holds more than {bounds.size} bytes")
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise _malformed(f"it cannot be decompressed ({error})") from None
    return bytes(out)


def _malformed(why: str) -> errors.MalformedError:
    return errors.MalformedError("archive", "", why)
