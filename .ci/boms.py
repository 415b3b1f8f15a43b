"""Bills of materials of an image: what its own list says, with what the lock knows.

In CI, whose environment is the locked one.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.release import boms

LOCK = (Path(__file__).parents[1] / "requirements-agent.txt").read_text()
VERSIONS = {name: version for name, (version, _) in boms.locked(LOCK).items()}
PYTHON = "pkg:generic/cpython@3.11.2"
LIBC, ZLIB = "pkg:deb/debian/libc6@2.36", "pkg:deb/debian/zlib1g@1.3"


def part(purl: str, **more: object) -> dict[str, object]:
    name, _, version = purl.rpartition("/")[2].partition("@")
    base = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**base, **more}


LISTED = {
    "components": [
        part(PYTHON, licenses=[{"license": {"id": "PSF-2.0"}}]),
        part(LIBC),
        part(ZLIB, licenses=[{"license": {"name": "of its own"}}]),
        part(f"pkg:pypi/yarl@{VERSIONS['yarl']}"),
        part(f"pkg:pypi/multidict@{VERSIONS['multidict']}"),
    ],
    "dependencies": [{"ref": ZLIB, "dependsOn": [LIBC, "pkg:deb/debian/not-installed@1"]}],
}


def image() -> bytes:
    return boms.of_image(boms.whole("container", "rte-agent", "1.0.0", "ab" * 32), LISTED, LOCK)


def test_python_packages_are_told_by_the_lock_and_others_by_the_image() -> None:
    told = json.loads(image())
    parts = {each["name"]: each for each in told["components"]}
    assert parts["yarl"]["hashes"]
    assert "Apache" in str(parts["yarl"]["licenses"])
    assert "hashes" not in parts["libc6"]
    assert len(parts) == len(LISTED["components"])
    needs = {each["ref"]: each["dependsOn"] for each in told["dependencies"]}
    assert parts["multidict"]["bom-ref"] in needs[parts["yarl"]["bom-ref"]]
    assert needs[ZLIB] == [LIBC]  # what is not there is needed by nobody


def test_spdx_has_a_licence_where_it_is_a_known_one_and_its_text_elsewhere() -> None:
    packages = {each["name"]: each for each in json.loads(boms.spdx(image()))["packages"]}
    assert packages["cpython"]["licenseDeclared"] == "PSF-2.0"
    assert packages["zlib1g"]["licenseDeclared"] == "NOASSERTION"
    assert packages["zlib1g"]["licenseComments"] == "of its own"
    assert packages["rte-agent"]["checksums"][0]["checksumValue"] == "ab" * 32
