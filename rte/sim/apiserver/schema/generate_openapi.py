"""Write ``openapi.json.gz``: the published schemas of the API, as ``kubectl explain`` reads them.

Usage: ``python -m rte.sim.apiserver.schema.generate_openapi FOLDER`` with the folder of
k8s.io/kubernetes. Kept is what the structs of ``types.json`` need. The published documents lack the
possible values of fields, which servers add from ``pkg/generated/openapi``.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from rte.sim.apiserver.schema import openapi, typed

_FUNCTION = re.compile(r"^func schema_(\w+)\(.*?\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ENUM = re.compile(
    r'"(\w+)": \{\n\s*SchemaProps: spec\.SchemaProps\{\n\s*Description: ("(?:[^"\\]|\\.)*"),\n'
    r"(?:\s*(?:Type|Format|Default):.*\n)*\s*Enum:\s*\[\]interface\{\}\{(.*)\},"
)


def main(folder: str) -> None:
    """Read the documents of ``folder`` and write the file beside this one."""
    every: dict[str, Any] = {}
    for path in sorted(Path(folder, "api/openapi-spec/v3").glob("*_openapi.json")):
        every |= json.loads(path.read_text()).get("components", {}).get("schemas", {})
    generated = Path(folder, "pkg/generated/openapi/zz_generated.openapi.go").read_text()
    for match in _FUNCTION.finditer(generated):
        name = match[1].replace("k8sio_", "io_k8s_", 1).replace("_", ".")
        properties = every.get(name, {}).get("properties", {})
        for field, text, values in _ENUM.findall(match[2]):
            told = {"description": json.loads(text), "enum": json.loads(f"[{values}]")}
            properties[field] = {**properties[field], **told} if field in properties else told
    kept: dict[str, Any] = {}
    left = [openapi.component(name) for name in typed.structs()]
    while left:
        name = left.pop()
        if name in every and name not in kept:
            kept[name] = every[name]
            left += re.findall(rf"{openapi.PREFIX}([\w.-]+)", json.dumps(every[name]))
    text = json.dumps(dict(sorted(kept.items())), separators=(",", ":")).encode()
    Path(__file__).with_name("openapi.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
