"""Bills of materials: CycloneDX 1.6, and the same as SPDX 2.3.

Of a Python package: licence and dependencies as it tells them itself, hashes of the lock (every
file of that version that the lock admits). Of an image: what its own list tells (.ci/sbom), Python
packages as above. Nothing in it depends on the time or on the machine.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release import packs
from tools.release.parts import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

Component = dict[str, Any]
_LOCKED = re.compile(r"(?m)^([\w.-]+)==(\S+)((?:[^\n]*\\\n)*[^\n]*)")
#: What wheels are chosen for; markers of other machines do not hold.
_MACHINE = {"sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """A requirements file: canonical name -> version and SHA-256 of each file it admits."""
    return {
        canonicalize_name(name): (version, sorted(re.findall(r"sha256:([0-9a-f]{64})", rest)))
        for name, version, rest in _LOCKED.findall(text)
    }


def python_components(requirements: str) -> tuple[list[Component], dict[str, list[str]]]:
    """The packages of a lock, and by purl what each of them needs.

    Raises:
        ReleaseError: this environment has not what the lock says.
    """
    lock = locked(requirements)
    purls = {name: f"pkg:pypi/{name}@{version}" for name, (version, _) in lock.items()}
    components, needs = [], {}
    for name, (version, hashes) in lock.items():
        try:
            told = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            told = None
        if told is None or told.version != version:
            raise ReleaseError(
                f"{name} {version} is not installed here: pip install -r requirements-dev.txt"
            )
        components.append(
            {
                "type": "library", "bom-ref": purls[name], "name": name, "version": version,
                "purl": purls[name], **licences(told.metadata),
                "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
            }
        )  # fmt: skip
        needs[purls[name]] = needed(told.requires or [], purls)
    return components, needs


def needed(requires: list[str], purls: Mapping[str, str]) -> list[str]:
    """The purls, among those of the lock, of what a package names as needed on Linux."""
    asked = [Requirement(line) for line in requires]
    names = {
        canonicalize_name(each.name)
        for each in asked
        if each.marker is None or each.marker.evaluate(_MACHINE)
    }
    return sorted(purls[name] for name in names & purls.keys())


def licences(told: metadata.PackageMetadata) -> dict[str, Any]:
    """The licence as the package itself names it: an expression, a text of a line, or nothing."""
    text = told.get("License-Expression")
    if text:
        return {"licenses": [{"expression": text}]}
    text = (told.get("License") or "").strip()
    if not text or "\n" in text:
        classes = [
            line.rpartition(" :: ")[2]
            for line in told.get_all("Classifier") or []
            if line.startswith("License :: OSI Approved :: ")
        ]
        text = " and ".join(classes)
    return {"licenses": [{"license": {"name": text}}]} if text else {}


def of_wheel(root: Component, requirements: str, direct: list[str]) -> bytes:
    """Of the distribution with its extra ``demo``, which has every other dependency."""
    components, needs = python_components(requirements)
    purls = {each["name"]: each["purl"] for each in components}
    needs[root["bom-ref"]] = needed(direct, purls)
    return document(root, components, needs)


def of_image(root: Component, listed: Mapping[str, Any], requirements: str) -> bytes:
    """Of an image, by its own list."""
    known, needs = python_components(requirements)
    by_purl = {each["purl"]: each for each in known}
    components = []
    for each in listed["components"]:
        purl = f"pkg:pypi/{canonicalize_name(each['name'])}@{each['version']}"
        components.append(by_purl.get(purl, each) if each["purl"].startswith("pkg:pypi/") else each)
    held = {each["bom-ref"] for each in components}
    for each in listed.get("dependencies", ()):
        needs[each["ref"]] = each["dependsOn"]
    needs = {ref: sorted(held & set(on)) for ref, on in needs.items() if ref in held}
    needs[root["bom-ref"]] = sorted(held - {on for each in needs.values() for on in each})
    return document(root, components, needs)


def whole(kind: str, name: str, version: str, sha256: str) -> Component:
    """What is told about: the wheel, or an image by the digest of its manifest."""
    return {
        "type": kind, "bom-ref": f"{kind}:{name}", "name": name, "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }  # fmt: skip


def document(root: Component, components: list[Component], needs: Mapping[str, list[str]]) -> bytes:
    """CycloneDX."""
    text = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": sorted(components, key=lambda each: each["bom-ref"]),
        "dependencies": [{"ref": ref, "dependsOn": needs[ref]} for ref in sorted(needs)],
    }
    return json.dumps(text, indent=1, sort_keys=True).encode() + b"\n"


def spdx(cyclonedx: bytes) -> bytes:
    """The same as SPDX 2.3."""
    told = json.loads(cyclonedx)
    root = told["metadata"]["component"]
    parts = [root, *told["components"]]
    names = {
        each["bom-ref"]: f"SPDXRef-{number}-{re.sub('[^A-Za-z0-9.]+', '-', each['name'])}"
        for number, each in enumerate(parts)
    }
    related = [
        {
            "spdxElementId": names[each["ref"]],
            "relatedSpdxElement": names[on],
            "relationshipType": "DEPENDS_ON",
        }
        for each in told["dependencies"]
        for on in each["dependsOn"]
    ]
    described = {
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relatedSpdxElement": names[root["bom-ref"]],
        "relationshipType": "DESCRIBES",
    }
    text = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{root['name']}-{root['version']}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{root['name']}-{packs.sha256(cyclonedx)}",
        "creationInfo": {
            # Not when it was made: equal contents give equal bytes.
            "created": datetime.fromtimestamp(packs.EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Organization: The rte authors", f"Tool: rte-release-{root['version']}"],
        },
        "packages": [_package(each, names[each["bom-ref"]]) for each in parts],
        "relationships": [described, *related],
    }
    return json.dumps(text, indent=1, sort_keys=True).encode() + b"\n"


def _package(part: Component, name: str) -> dict[str, Any]:
    """A hash is given where it is of the one file that is meant; a lock admits several."""
    package = {
        "SPDXID": name,
        "name": part["name"],
        "versionInfo": part["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "copyrightText": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
    }
    for each in part.get("licenses", ()):
        known = each.get("expression") or each["license"].get("id")
        if known:
            package["licenseDeclared"] = known
        else:
            package["licenseComments"] = each["license"]["name"]
    hashes = [each["content"] for each in part.get("hashes", ())]
    if len(hashes) == 1:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": hashes[0]}]
    elif hashes:
        package["comment"] = "one of these files, SHA-256: " + " ".join(hashes)
    if "purl" in part:
        package["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": part["purl"],
            }
        ]
    return package
