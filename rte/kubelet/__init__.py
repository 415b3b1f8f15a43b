"""What the kubelet says: podresources, state files, effective configuration."""

from pathlib import Path

#: Of the kubelet's flag ``--root-dir`` (cmd/kubelet/app/options).
DEFAULT_ROOT_DIR = Path("/var/lib/kubelet")
