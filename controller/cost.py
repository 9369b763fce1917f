"""The mean cost of a tuple, from busy seconds and counts, forgetting the past within seconds."""

import math


class MeanCost:
    """Busy seconds per tuple over an exponentially fading window; None before the first tuple."""

    def __init__(self, *, memory: float = 2.0) -> None:
        self._memory = memory  # seconds after which an observation weighs 1/e
        self._busy = 0.0
        self._count = 0.0

    def observe(self, *, busy: float, count: float, elapsed: float) -> None:
        # Only new evidence pushes old evidence out: an idle hour leaves the estimate alone.
        if count <= 0:
            return
        fade = math.exp(-elapsed / self._memory)
        self._busy = self._busy * fade + busy
        self._count = self._count * fade + count

    @property
    def value(self) -> float | None:
        # A function faster than the clock's tick would cost nothing and every rate be infinite.
        return max(self._busy / self._count, 1e-9) if self._count else None
