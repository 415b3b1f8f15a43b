"""NodeResourceTopology objects: encode, decode, annotations, pod fingerprint (pure)."""

from rte.nrt.attributes import Method
from rte.nrt.foreign import zone_table
from rte.nrt.node_state import ANNOTATION as NODE_STATE_ANNOTATION
from rte.nrt.reader import NRT, ReportedZone, decode, decode_state
from rte.nrt.writer import (
    ANNOTATIONS,
    API_VERSION,
    GROUP,
    KIND,
    Encoded,
    WriterOptions,
    build,
    encode,
    zone_name,
)

__all__ = [
    "ANNOTATIONS",
    "API_VERSION",
    "GROUP",
    "KIND",
    "NODE_STATE_ANNOTATION",
    "NRT",
    "Encoded",
    "Method",
    "ReportedZone",
    "WriterOptions",
    "build",
    "decode",
    "decode_state",
    "encode",
    "zone_name",
    "zone_table",
]
