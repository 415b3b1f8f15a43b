"""How NRI's messages travel: ttrpc inside of a multiplexer, over one socket (pure).

Sources: ``pkg/net/multiplex`` of containerd/nri (connection, length, bytes) and ``channel.go`` of
containerd/ttrpc (length, stream, kind, flags, bytes), all numbers big-endian.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Connections of the multiplexer.
PLUGIN, RUNTIME = 1, 2
#: Kinds of messages.
REQUEST, RESPONSE = 1, 2
#: ttrpc's limit for one message.
MOST_BYTES = 4 << 20

_FRAME = struct.Struct(">II")
_MESSAGE = struct.Struct(">IIBB")


class NRIError(errors.RteError):
    """The runtime does not speak NRI, or refuses."""


class Message(NamedTuple):
    """One message of a connection; ``stream`` ties an answer to its request."""

    connection: int
    stream: int
    kind: int
    payload: bytes


def encode(message: Message) -> bytes:
    """The bytes of a message, in one frame."""
    body = _MESSAGE.pack(len(message.payload), message.stream, message.kind, 0) + message.payload
    return _FRAME.pack(message.connection, len(body)) + body


class Decoder:
    """Bytes as they come into messages."""

    def __init__(self) -> None:
        self._trunk = bytearray()
        self._connections: dict[int, bytearray] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now.

        Raises:
            NRIError: a message is longer than ttrpc allows, or of no connection.
        """
        self._trunk += data
        while len(self._trunk) >= _FRAME.size:
            connection, length = _FRAME.unpack_from(self._trunk)
            if connection not in (PLUGIN, RUNTIME):
                raise NRIError(
                    f"a frame of {length} bytes of connection {connection}, which is none"
                )
            if length > MOST_BYTES + _MESSAGE.size:
                raise NRIError(f"a frame of {length} bytes")
            if len(self._trunk) < _FRAME.size + length:
                return
            stream = self._connections.setdefault(connection, bytearray())
            stream += self._trunk[_FRAME.size : _FRAME.size + length]
            del self._trunk[: _FRAME.size + length]
            yield from _messages(connection, stream)


def _messages(connection: int, stream: bytearray) -> Iterator[Message]:
    while len(stream) >= _MESSAGE.size:
        length, number, kind, _ = _MESSAGE.unpack_from(stream)
        if length > MOST_BYTES:
            raise NRIError(f"a message of {length} bytes")
        end = _MESSAGE.size + length
        if len(stream) < end:
            return
        payload = bytes(stream[_MESSAGE.size : end])
        del stream[:end]
        yield Message(connection, number, kind, payload)
