"""Koordinator's DeviceShare: GPUs and RDMA NICs chosen together by PCIe switch (pure).

Source: Koordinator ``pkg/scheduler/plugins/deviceshare`` and ``apis/extension/device_share.go``.
Its answers are kept, oddities included (``exclusivePolicy: PCIeLevel`` has no effect), but for one:
its search for GPUs and NICs of the same switches is greedy and refuses pods that have a place; here
the place is found.
"""
