"""ImageLocality: nodes that have the pod's images already, for the profiles that weigh it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.plugin import RowScore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Rows
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot

_MIB = 1 << 20
#: Bytes of images that count for nothing, and that one container's image can count for.
_LEAST, _MOST = 23 * _MIB, 1000 * _MIB


class ImageLocality(RowScore):
    """kube-scheduler's rule of that name.

    An image counts by its size and by the share of the nodes that have it, so that pods do not
    pile up where an image happened to be pulled first.
    """

    name = "ImageLocality"
    says = "where `--scores` weighs it: images of containers, init containers and image volumes"
    weight = 0.0

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether some node has one of its images."""
        return not snapshot.columns.images.keys().isdisjoint(pod.shape.images)

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """0 to 100, not stretched."""
        columns, images = snapshot.columns, pod.shape.images
        nodes = np.count_nonzero(columns.present)
        sums = np.zeros(columns.rows, dtype=np.int64)
        for image in images:
            if image in columns.images:
                size, held = columns.images[image]
                sums[list(held)] += int(size * (len(held) / nodes))
        most = _MOST * len(images)
        scores = 100 * (np.clip(sums[rows], _LEAST, most) - _LEAST) // (most - _LEAST)
        return scores.astype(np.float64)
