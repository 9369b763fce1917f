"""Headroom measured: the busy seconds per second that the engine reaches while it is saturated.

A micro-batch engine always has something outstanding, at half load too, so "never idle" does not mean
saturated: there the busy time per second is just the load offered. Only periods in which work was shed, or
in which the backlog came near the set point, tell what the engine can do.
"""

import math

PRIOR_SHARE = 0.8  # of the slots, before anything was measured


class Headroom:
    """An exponentially fading mean of busy seconds per second over saturated periods."""

    def __init__(self, *, memory: float = 4.0, prior_weight: float = 1.0) -> None:
        self._memory = memory
        self._prior_weight = prior_weight  # seconds of observation that the prior is worth
        self._slots = 0
        self._busy = 0.0
        self._seconds = 0.0

    def engine(self, slots: int) -> None:
        """The engine's size; with another one, what was learned of the last does not apply."""
        if slots != self._slots:
            self._slots = slots
            self._seconds = self._prior_weight
            self._busy = PRIOR_SHARE * slots * self._prior_weight

    def observe(self, *, busy: float, period: float) -> None:
        """A saturated period."""
        fade = math.exp(-period / self._memory)
        self._busy = self._busy * fade + min(busy, self._slots * period * 1.5)
        self._seconds = self._seconds * fade + period

    @property
    def value(self) -> float:
        if not self._seconds:
            return PRIOR_SHARE
        # Never nothing: a stalled engine must be able to show that it works again.
        return max(self._busy / self._seconds, 0.05)
