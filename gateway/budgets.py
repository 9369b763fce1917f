"""Budgets between the decision code and the control topic, where None stands for unlimited."""

import math

from controller.budget import UNLIMITED, Budget, Reason
from gateway.transport import TopicPartition
from protocol.messages import BudgetMessage


def to_message(budget: Budget, *, source: TopicPartition, epoch: int, sequence: int, at: float) -> BudgetMessage:
    return BudgetMessage(
        epoch=epoch,
        sequence=sequence,
        topic=source.topic,
        partition=source.partition,
        rate=_finite(budget.rate),
        offered=budget.offered,
        limit_s=_finite(budget.limit),
        deadline_s=_finite(budget.deadline),
        cost_s=budget.cost,
        period_s=budget.period,
        reason=budget.reason.value,
        at_s=at,
    )


def from_message(message: BudgetMessage) -> Budget:
    """Raises ValueError for a reason that this version does not know."""
    return Budget(
        rate=_or_unlimited(message.rate),
        offered=message.offered,
        limit=_or_unlimited(message.limit_s),
        deadline=_or_unlimited(message.deadline_s),
        cost=message.cost_s,
        period=message.period_s,
        reason=Reason(message.reason),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_unlimited(value: float | None) -> float:
    return UNLIMITED if value is None else value
