"""The seams of the decision code: when and how much (LoadManager), and what (Shedder)."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.batch import Batch, Verdicts
from controller.budget import Budget
from controller.observation import Observation


class LoadManager(Protocol):
    def step(self, seen: Observation) -> Budget:
        """The pipeline's budget for the next period."""


class Shedder(Protocol):
    def admit(self, batch: Batch, budget: Budget, draws: NDArray[np.float64]) -> Verdicts:
        """A verdict for each tuple of one partition; ``draws`` are the caller's, uniform on [0, 1)."""
