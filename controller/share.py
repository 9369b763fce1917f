"""One budget for the pipeline becomes one per partition, by offered load, together the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from controller.budget import UNLIMITED, Budget, Reason

Key = TypeVar("Key")

_EVEN_PART = 0.1  # of the budget, shared evenly: a partition that wakes up finds something


def split(budget: Budget, offered: Mapping[Key, float], *, slot_limit: float, guarded: bool) -> dict[Key, Budget]:
    """Budgets by partition. ``slot_limit``: outstanding work that one slot finishes within the set point.

    A partition's records are worked through one after another by one task, so a hot partition drains at
    one slot whatever the rest of the engine does. While everything offered fits, a guarded partition gets at
    least an even share, or random fluctuations between partitions would be shed.
    """
    if not offered:
        return {}
    total = sum(offered.values())
    even = 1 / len(offered)
    relaxed = guarded and budget.reason is Reason.ON_TARGET
    parts: dict[Key, Budget] = {}
    for key, load in offered.items():
        share = _EVEN_PART * even + (1 - _EVEN_PART) * (load / total if total else even)
        room = max(share, even) if relaxed else share
        parts[key] = replace(
            budget,
            rate=UNLIMITED if budget.rate == UNLIMITED else budget.rate * room,
            offered=load,
            limit=UNLIMITED if budget.limit == UNLIMITED else min(budget.limit * room, slot_limit),
        )
    return parts
