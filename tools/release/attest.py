"""What lets a release be trusted: checksums, how it was made, and a signature over both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tools.release import packs
from tools.release.parts import ReleaseError, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHECKSUMS = "SHA256SUMS"
#: ssh-keygen's namespace: a signature for a release is good for nothing else.
NAMESPACE = "rte-release"


def provenance(
    files: Mapping[str, bytes],
    commit: str,
    parameters: Mapping[str, Any],
    needed: Mapping[str, str],
) -> bytes:
    """An in-toto statement with SLSA's predicate: these files, from this commit and these inputs.

    ``needed``: name of an input -> SHA-256. There is no time in it, so that it is the same twice.
    """
    inputs = [{"name": name, "digest": {"sha256": needed[name]}} for name in sorted(needed)]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": packs.sha256(files[name])}}
            for name in sorted(files)
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://slsa.dev/provenance/v1#python-m-tools.release",
                "externalParameters": dict(parameters),
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *inputs,
                ],
            },
            "runDetails": {"builder": {"id": "https://slsa.dev/provenance/v1#local"}},
        },
    }
    return json.dumps(statement, indent=1, sort_keys=True).encode() + b"\n"


def checksums(files: Mapping[str, bytes]) -> bytes:
    """As ``sha256sum --check`` reads it."""
    lines = [f"{packs.sha256(files[name])}  {name}\n" for name in sorted(files)]
    return "".join(lines).encode()


def check(key: Path) -> None:
    """There is something to sign with.

    Raises:
        ReleaseError: there is not.
    """
    if not key.is_file():
        raise ReleaseError(f"no key at {key}: ssh-keygen -t ed25519 -f {key}")


def sign(folder: Path, key: Path) -> None:
    """``SHA256SUMS.sig`` by an SSH key; that of an Ed25519 key is the same twice.

    Raises:
        ReleaseError: ssh-keygen cannot use the key.
    """
    (folder / f"{CHECKSUMS}.sig").unlink(missing_ok=True)
    run("ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE, folder / CHECKSUMS)
