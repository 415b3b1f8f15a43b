"""Images: each as an OCI layout of its own, out of the archive that the test bed runs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.cluster import images
from tools.release import arm64, oci, packs

if TYPE_CHECKING:
    from pathlib import Path

#: image -> what it is locked to.
LOCKS = {"agent": "requirements-agent.txt", "scheduler": "requirements.txt"}


@dataclass(frozen=True)
class Image:
    """One image for one architecture."""

    target: str
    machine: str
    """As OCI names it: ``amd64``, ``arm64``."""
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

    def found(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The index' entry of an image, and its manifest."""
        (entry,) = (
            each for each in self._index["manifests"] if each["annotations"][oci.NAME] == name
        )
        return entry, json.loads(self.blob(entry["digest"]))

    def layout(self, name: str) -> bytes:
        """A tar with the image of that name alone."""
        entry, manifest = self.found(name)
        parts = [manifest["config"], *manifest["layers"]]
        blobs = [self.blob(each["digest"]) for each in (entry, *parts)]
        return oci.laid_out(blobs, entry)

    def image(self, target: str, name: str) -> Image:
        """An image of rte's, with the list that it keeps."""
        entry, manifest = self.found(name)
        (layer,) = manifest["layers"]
        content = gzip.decompress(self.blob(layer["digest"]))
        with tarfile.open(fileobj=io.BytesIO(content)) as held:
            file = held.extractfile(arm64.LIST)
            assert file is not None, f"{name} has no {arm64.LIST}"
            listed = json.load(file)
        digest = entry["digest"].partition(":")[2]
        return Image(target, "amd64", self.layout(name), digest, layer["size"], listed)

    def for_arm64(self, target: str, name: str, requirements: Path) -> Image:
        """The same for arm64, put together out of it.

        Raises:
            tools.release.parts.ReleaseError: see :func:`arm64.image`.
        """
        _, manifest = self.found(name)
        (layer,) = manifest["layers"]
        packed, config, tree = arm64.image(
            self.blob(layer["digest"]), self.blob(manifest["config"]["digest"]), requirements
        )
        manifest = {
            "schemaVersion": 2,
            "mediaType": manifest["mediaType"],
            "config": oci.described(config, manifest["config"]["mediaType"]),
            "layers": [oci.described(packed, layer["mediaType"])],
        }
        text = json.dumps(manifest, sort_keys=True).encode()
        entry = oci.described(text, manifest["mediaType"]) | {
            "annotations": {oci.NAME: name},
            "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"},
        }
        layout = oci.laid_out([text, config, packed], entry)
        listed = json.loads(tree[arm64.LIST][1])
        return Image(target, "arm64", layout, packs.sha256(text), len(packed), listed)


def all_of(tree: Path) -> list[Image]:
    """Those of a tree, built where the cache lacks them, for each machine.

    Raises:
        tests.cluster.processes.ClusterError: a tool is missing or a step failed.
        tools.release.parts.ReleaseError: what one for arm64 is made of is not to be had.
    """
    found = []
    with Archive(images.archive(tree)) as archive:
        for target, name in images.names(tree).items():
            full = f"docker.io/library/{name}"
            found.append(archive.image(target, full))
            found.append(archive.for_arm64(target, full, tree / LOCKS[target]))
    return found


def fetch(tree: Path) -> None:
    """Get what :func:`all_of` is made of into the cache; after that it needs no network.

    Raises:
        tests.cluster.processes.ClusterError, tools.release.parts.ReleaseError: see there.
    """
    with Archive(images.archive(tree)) as archive:
        for target, name in images.names(tree).items():
            _, manifest = archive.found(f"docker.io/library/{name}")
            (layer,) = manifest["layers"]
            arm64.fetched(arm64.read(archive.blob(layer["digest"])), tree / LOCKS[target])
