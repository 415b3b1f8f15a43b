"""Images: each as an OCI layout of its own, taken out of the archive that the test bed runs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster import images
from tools.release import packs

if TYPE_CHECKING:
    from pathlib import Path

#: Where an image keeps the list of what it is made of (Dockerfile).
LIST = "opt/rte/sbom.cdx.json"


@dataclass(frozen=True)
class Image:
    """One image for one architecture."""

    target: str
    layout: bytes
    """A tar of an OCI layout: ``ctr images import``, ``skopeo copy oci-archive:``."""
    digest: str
    compressed: int
    """Bytes of its layers, as a registry sends them."""
    listed: dict[str, Any]


def all_of(tree: Path) -> list[Image]:
    """Those of a tree, built where the cache lacks them.

    Raises:
        tests.cluster.processes.ClusterError: a tool is missing or a step failed.
    """
    with tarfile.open(images.archive(tree)) as archive:
        blobs = {each.name: archive.extractfile(each) for each in archive if each.isfile()}

        def blob(digest: str) -> bytes:
            held = blobs[f"blobs/{digest.replace(':', '/')}"]
            assert held is not None
            held.seek(0)
            return held.read()

        index_file = blobs["index.json"]
        assert index_file is not None
        index = json.load(index_file)
        return [
            one(target, index, f"docker.io/library/{name}", blob)
            for target, name in images.names(tree).items()
        ]


def one(target: str, index: Any, name: str, blob: Any) -> Image:
    """The image of that name, with what it refers to and nothing else."""
    (entry,) = (
        each
        for each in index["manifests"]
        if each["annotations"]["org.opencontainers.image.ref.name"] == name
    )
    manifest = json.loads(blob(entry["digest"]))
    digests = [entry["digest"], manifest["config"]["digest"]]
    digests += [layer["digest"] for layer in manifest["layers"]]
    files = {f"blobs/{each.replace(':', '/')}": blob(each) for each in digests}
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    files["index.json"] = json.dumps(
        {"schemaVersion": 2, "manifests": [entry]}, sort_keys=True
    ).encode()
    listed = None
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as held:
            if LIST in held.getnames():
                file = held.extractfile(LIST)
                assert file is not None
                listed = json.load(file)
    assert listed is not None, f"{name} has no {LIST}"
    size = sum(layer["size"] for layer in manifest["layers"])
    return Image(target, packs.tar(files), entry["digest"].partition(":")[2], size, listed)
