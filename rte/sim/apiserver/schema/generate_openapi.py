"""Write ``openapi.json.gz``: the published schemas of the API, as ``kubectl explain`` reads them.

Usage: ``python -m rte.sim.apiserver.schema.generate_openapi FOLDER`` with the folder
``api/openapi-spec/v3`` of k8s.io/kubernetes. Kept is what the structs of ``types.json`` need.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from rte.sim.apiserver.schema import openapi, typed


def main(folder: str) -> None:
    """Read the documents of ``folder`` and write the file beside this one."""
    every: dict[str, Any] = {}
    for path in sorted(Path(folder).glob("*_openapi.json")):
        every |= json.loads(path.read_text()).get("components", {}).get("schemas", {})
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
