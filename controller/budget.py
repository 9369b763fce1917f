"""What may be admitted until the next control period, and why: the answer of every load manager."""

import math
from dataclasses import dataclass
from enum import StrEnum

UNLIMITED = math.inf


class Reason(StrEnum):
    """Why a budget is what it is, and why a record was shed; doubles as the metric label."""

    ON_TARGET = "on_target"  # everything offered may be admitted
    TOO_SLOW = "too_slow"  # admitting all would miss the target
    PASS_THROUGH = "pass_through"  # no load manager: nothing is shed
    COLD_START = "cold_start"  # the engine has not reported yet
    NO_FEEDBACK = "no_feedback"  # the engine reported once and has fallen silent
    OVER_BUDGET = "over_budget"  # the record came when the period's budget was spent
    BACKLOG_FULL = "backlog_full"  # the work outstanding already fills the target
    UNLUCKY = "unlucky"  # the coin fell on shed


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits in engine-seconds, the one currency in which rates, loads and costs of all laws meet."""

    rate: float = UNLIMITED  # engine-seconds per second that may be admitted
    offered: float = 0.0  # engine-seconds per second expected to arrive
    limit: float = UNLIMITED  # engine-seconds that may be outstanding at once
    deadline: float = UNLIMITED  # seconds within which a tuple must be predicted to finish
    cost: float | None = None  # mean engine-seconds of one tuple; None while unknown
    period: float = 0.5
    reason: Reason = Reason.PASS_THROUGH

    @property
    def keep(self) -> float:
        """The share of what is offered that fits into the rate."""
        if self.rate >= self.offered:
            return 1.0
        return max(0.0, self.rate / self.offered)
