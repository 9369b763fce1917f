"""Random: every tuple costs the mean and is worth the same; the gate alone decides."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.batch import Batch, Verdicts
from controller.budget import Budget
from controller.gate import Gate


@dataclass(slots=True)
class RandomShedder:
    """What to shed when nothing is known of the content: whatever comes when the budget is spent."""

    gate: Gate

    def admit(self, batch: Batch, budget: Budget, draws: NDArray[np.float64]) -> Verdicts:
        return self.gate.pass_batch(replace(batch, cost=None), budget, draws)
