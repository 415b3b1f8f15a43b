"""Images: each as an OCI layout of its own, taken out of the archive that the test bed runs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

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


class Archive:
    """The test bed's archive of images, for as long as it is needed."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path)  # noqa: SIM115 - closed with the archive
        self._index = json.loads(self._read("index.json"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def _read(self, name: str) -> bytes:
        file = self._tar.extractfile(name)
        assert file is not None, name
        return file.read()

    def blob(self, digest: str) -> bytes:
        """What has that digest."""
        return self._read(f"blobs/{digest.replace(':', '/')}")

    def layout(self, name: str) -> tuple[bytes, str, list[dict[str, Any]]]:
        """A tar with the image of that name alone, its digest, and its layers."""
        (entry,) = (
            each
            for each in self._index["manifests"]
            if each["annotations"]["org.opencontainers.image.ref.name"] == name
        )
        manifest = json.loads(self.blob(entry["digest"]))
        digests = [entry["digest"], manifest["config"]["digest"]]
        digests += [layer["digest"] for layer in manifest["layers"]]
        files = {f"blobs/{each.replace(':', '/')}": self.blob(each) for each in digests}
        files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
        index = {"schemaVersion": 2, "manifests": [entry]}
        files["index.json"] = json.dumps(index, sort_keys=True).encode()
        return packs.tar(files), entry["digest"], manifest["layers"]

    def image(self, target: str, name: str) -> Image:
        """An image of rte's, with the list that it keeps."""
        layout, digest, layers = self.layout(name)
        listed = None
        for layer in layers:
            content = gzip.decompress(self.blob(layer["digest"]))
            with tarfile.open(fileobj=io.BytesIO(content)) as held:
                file = held.extractfile(LIST) if LIST in held.getnames() else None
                listed = json.load(file) if file else listed
        assert listed is not None, f"{name} has no {LIST}"
        size = sum(layer["size"] for layer in layers)
        return Image(target, layout, digest.partition(":")[2], size, listed)


def all_of(tree: Path) -> list[Image]:
    """Those of a tree, built where the cache lacks them.

    Raises:
        tests.cluster.processes.ClusterError: a tool is missing or a step failed.
    """
    with Archive(images.archive(tree)) as archive:
        return [
            archive.image(target, f"docker.io/library/{name}")
            for target, name in images.names(tree).items()
        ]
