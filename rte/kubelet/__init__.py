"""What the kubelet says: podresources, state files, effective configuration."""

from pathlib import Path

#: Of the kubelet's flag ``--root-dir`` (cmd/kubelet/app/options).
DEFAULT_ROOT_DIR = Path("/var/lib/kubelet")

#: Where the device manager keeps its checkpoint and its socket, below the usual directory of a
#: kubelet; one with another ``--root-dir`` keeps them there as well (pluginapi.DevicePluginPath).
PLUGIN_DIR = "device-plugins"
