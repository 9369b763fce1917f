"""The gate of one partition: spends a budget on tuples in the order in which they come.

``exact`` is a bucket of engine-seconds filled at the budget's rate, half a period deep. ``guarded`` is
exact, and never lets the work outstanding exceed the budget's limit: the law sees the queue half a
second late, the gate sees it now. ``coin`` is the papers' actuator: keep each tuple with one probability.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from controller.batch import ADMITTED, SHED_REASONS, Batch, Verdicts
from controller.budget import Budget, Reason

_OVER_BUDGET = SHED_REASONS.index(Reason.OVER_BUDGET)
_BACKLOG_FULL = SHED_REASONS.index(Reason.BACKLOG_FULL)
_UNLUCKY = SHED_REASONS.index(Reason.UNLUCKY)
# A budget given for want of measurements says so in its verdicts; any other blames what was exceeded.
_BLIND = {reason: SHED_REASONS.index(reason) for reason in (Reason.COLD_START, Reason.NO_FEEDBACK)}


_ALMOST = 1 - 1e-9  # a bucket emptied in equal parts must not miss its last by a rounding error


class Actuator(StrEnum):
    GUARDED = "guarded"
    EXACT = "exact"
    COIN = "coin"


class Gate:
    """Holds what must last between batches: the bucket's level, the trickle's, and their time."""

    def __init__(self, actuator: Actuator, *, trickle_per_second: float) -> None:
        self.actuator = actuator
        self._trickle_rate = trickle_per_second
        self._at: float | None = None
        self._level = 0.0  # engine-seconds
        self._trickle = 1.0  # tuples

    def pass_batch(self, batch: Batch, budget: Budget, draws: NDArray[np.float64]) -> Verdicts:
        count = len(batch)
        if not count:
            return Verdicts(codes=np.empty(0, np.int8))
        if self._lets_all_pass(batch, budget):
            self._at = float(batch.at[-1])
            return Verdicts(codes=np.full(count, ADMITTED, np.int8))
        if self.actuator is Actuator.COIN and not self._guards(budget):
            codes = np.where(draws < budget.keep, ADMITTED, _UNLUCKY).astype(np.int8)
            self._drip(batch, codes)
            return Verdicts(codes=codes)
        return Verdicts(codes=self._spend(batch, budget))

    def _lets_all_pass(self, batch: Batch, budget: Budget) -> bool:
        if budget.rate != np.inf:
            return False
        if not self._guards(budget) or budget.limit == np.inf:
            return True
        return bool(batch.outstanding + _total_cost(batch, budget) <= budget.limit)

    def _guards(self, budget: Budget) -> bool:
        """A limit set for want of measurements binds every actuator: there is no law to rely on."""
        return self.actuator is Actuator.GUARDED or budget.reason in _BLIND

    def _drip(self, batch: Batch, codes: NDArray[np.int8]) -> None:
        """Admit one tuple now and then whatever the coin says, or the controller goes blind."""
        for i in np.flatnonzero(codes != ADMITTED):
            self._advance(float(batch.at[i]), rate=0.0, depth=0.0)
            if self._trickle >= 1.0:
                self._trickle -= 1.0
                codes[i] = ADMITTED

    def _spend(self, batch: Batch, budget: Budget) -> NDArray[np.int8]:
        guarded = self._guards(budget)
        outstanding = batch.outstanding
        mean = budget.cost or 0.0
        backlog_full = _BLIND.get(budget.reason, _BACKLOG_FULL)
        over_budget = _BLIND.get(budget.reason, _OVER_BUDGET)
        codes = np.empty(len(batch), np.int8)
        depth = max(budget.rate * budget.period / 2, mean)
        for i in range(len(batch)):
            cost = mean if batch.cost is None else float(batch.cost[i])
            self._advance(float(batch.at[i]), budget.rate, depth)
            if guarded and outstanding + cost > budget.limit:
                code = backlog_full
            elif self._level < cost * _ALMOST:
                code = over_budget
            else:
                code = ADMITTED
                self._level -= cost
            if code != ADMITTED and self._trickle >= 1.0:
                code = ADMITTED
                self._trickle -= 1.0
            if code == ADMITTED:
                outstanding += cost
            codes[i] = code
        return codes

    def _advance(self, at: float, rate: float, depth: float) -> None:
        """Fill bucket and trickle up to ``at``; a time that runs backwards fills nothing."""
        elapsed = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at if self._at is None else max(at, self._at)
        filled = depth if rate == np.inf else self._level + rate * elapsed
        self._level = min(depth, filled)
        self._trickle = min(1.0, self._trickle + self._trickle_rate * elapsed)


def _total_cost(batch: Batch, budget: Budget) -> float:
    if batch.cost is not None:
        return float(batch.cost.sum())
    return len(batch) * (budget.cost or 0.0)
