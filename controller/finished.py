"""Which offsets of a partition are finished: each counts once, however often it is worked on again.

Tasks report ranges, cumulative within one attempt. Retries, speculative copies, splits of a partition over
several tasks and replays after a restart overlap; gaps between ranges are transaction markers. When a newer
batch of the same run appears, everything reported of older batches is complete, so the ranges collapse.
"""

from bisect import bisect_right, insort
from dataclasses import dataclass


@dataclass(slots=True)
class _Attempt:
    batch: int
    next: int
    count: int
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one report added."""

    finished: int = 0  # tuples never finished before
    worked: int = 0  # tuples worked on, repeated ones included
    busy: float = 0.0


class Finished:
    """The finished ranges of one partition, as sorted disjoint half-open intervals."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._run = ""
        self._batch = -1

    def report(self, *, run: str, batch: int, task: int, first: int, next: int, count: int, busy: float) -> News:
        self._begin(run, batch)
        last = self._attempts.setdefault((run, task), _Attempt(batch, first, 0, 0.0))
        if next < last.next or count < last.count or busy < last.busy:
            return News()  # an older report of this attempt that came late
        worked, length = count - last.count, next - last.next
        fresh = length - self.covered(last.next, next)
        news = News(
            finished=round(worked * fresh / length) if length else 0,
            worked=worked,
            busy=busy - last.busy,
        )
        self._cover(last.next, next)
        last.next, last.count, last.busy = next, count, busy
        return news

    def _begin(self, run: str, batch: int) -> None:
        if run != self._run:
            self._run, self._batch, self._attempts = run, batch, {}
        elif batch > self._batch:
            self._batch = batch
            if self._ranges:
                self._ranges = [(0, self._ranges[-1][1])]
            self._attempts = {}

    def covered(self, start: int, end: int) -> int:
        """How many offsets of [start, end) are finished."""
        return sum(max(0, min(end, b) - max(start, a)) for a, b in self._ranges)

    @property
    def end(self) -> int:
        """The offset behind the highest finished one; 0 before any."""
        return self._ranges[-1][1] if self._ranges else 0

    def _cover(self, start: int, end: int) -> None:
        if start >= end:
            return
        # Neighbours that touch or overlap the new range melt into it.
        low = bisect_right(self._ranges, (start, start))
        if low and self._ranges[low - 1][1] >= start:
            low -= 1
        high = low
        while high < len(self._ranges) and self._ranges[high][0] <= end:
            start, end = min(start, self._ranges[high][0]), max(end, self._ranges[high][1])
            high += 1
        del self._ranges[low:high]
        insort(self._ranges, (start, end))
