"""OCI layouts: of an image, and of a chart as Helm lays it out in a registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tools.release import packs

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "org.opencontainers.image.ref.name"


def described(content: bytes, media_type: str) -> dict[str, Any]:
    """OCI's descriptor of a blob."""
    return {
        "mediaType": media_type, "digest": f"sha256:{packs.sha256(content)}", "size": len(content),
    }  # fmt: skip


def laid_out(blobs: Iterable[bytes], entry: dict[str, Any]) -> bytes:
    """A tar of an OCI layout with one image or chart; ``entry`` is the index' entry of it."""
    files = {f"blobs/sha256/{packs.sha256(each)}": each for each in blobs}
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    index = {"schemaVersion": 2, "manifests": [entry]}
    files["index.json"] = json.dumps(index, sort_keys=True).encode()
    return packs.tar(files)


def of_chart(told: dict[str, Any], archive: bytes) -> bytes:
    """A chart as ``helm push`` lays it out; ``told``: its Chart.yaml, ``archive``: its .tgz."""
    config = json.dumps(told, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described(config, "application/vnd.cncf.helm.config.v1+json"),
        "layers": [described(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")],
        "annotations": {
            "org.opencontainers.image.title": told["name"],
            "org.opencontainers.image.version": told["version"],
        },
    }
    text = json.dumps(manifest, sort_keys=True).encode()
    entry = described(text, str(manifest["mediaType"])) | {"annotations": {NAME: told["version"]}}
    return laid_out([text, config, archive], entry)
