"""Tuples of one partition as columns, and the verdicts on them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.budget import Reason

# A verdict's reason is an index into this tuple, so that a batch of verdicts is one array.
SHED_REASONS: tuple[Reason, ...] = (
    Reason.OVER_BUDGET,
    Reason.BACKLOG_FULL,
    Reason.UNLUCKY,
    Reason.COLD_START,
    Reason.NO_FEEDBACK,
)
ADMITTED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Consecutive tuples of one partition, in order."""

    at: NDArray[np.float64]  # seconds; when each counts as having come, never decreasing
    cost: NDArray[np.float64] | None = None  # estimated engine-seconds of each; None: the mean for all
    outstanding: float = 0.0  # engine-seconds admitted earlier and unfinished

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """``codes[i]`` is ADMITTED or the index of the reason in SHED_REASONS."""

    codes: NDArray[np.int8]

    @property
    def admitted(self) -> NDArray[np.bool_]:
        admitted: NDArray[np.bool_] = self.codes == ADMITTED
        return admitted
