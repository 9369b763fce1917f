"""The micro-batch engine in virtual time: fixed overhead per batch, slots, one task per partition.

A batch takes what waits when it starts. Its tasks begin after the overhead; a partition's tuples are worked
through one after another, partitions beyond the slots wait for one to come free. Results are visible as
they are computed. This is what Spark Structured Streaming is, seen from outside.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    partition: int
    arrived: float
    finished: float


@dataclass(slots=True)
class MicroBatchEngine:
    slots: int
    partitions: int
    overhead: Callable[[], float]  # of the next batch, seconds; may jitter
    now: float = 0.0
    batches: list[tuple[float, dict[int, float]]] = field(default_factory=list)  # start of work, busy by partition
    results: list[Result] = field(default_factory=list)
    _waiting: list[list[tuple[float, float]]] = field(default_factory=list)  # per partition: arrived, cost
    _running: list[tuple[float, float, Result]] = field(default_factory=list)  # finish time, cost, result; sorted
    _shown: int = 0
    _ends: float = 0.0

    def __post_init__(self) -> None:
        self._waiting = [[] for _ in range(self.partitions)]

    def admit(self, partition: int, arrived: float, cost: float) -> None:
        self._waiting[partition].append((arrived, cost))

    def advance(self, to: float) -> tuple[list[Result], float]:
        """Run until ``to``; the results that became visible, and the busy seconds they took."""
        fresh: list[Result] = []
        busy = 0.0
        while True:
            done, seconds = self._show(min(to, self._ends))
            fresh += done
            busy += seconds
            if self._ends > to:
                break
            self.now = max(self.now, self._ends)
            if not any(self._waiting):
                break
            self._start_batch(max(self.now, self._ends))
        self.now = to
        if self._ends <= to:
            self._ends = to
        self.results += fresh
        return fresh, busy

    def _show(self, until: float) -> tuple[list[Result], float]:
        last = bisect_right(self._running, until, key=lambda item: item[0])
        shown = self._running[self._shown : last]
        self._shown = max(self._shown, last)
        return [result for _, _, result in shown], sum(cost for _, cost, _ in shown)

    def _start_batch(self, at: float) -> None:
        begins = at + self.overhead()
        self.batches.append((begins, {p: sum(cost for _, cost in w) for p, w in enumerate(self._waiting) if w}))
        free = [begins] * self.slots
        running: list[tuple[float, float, Result]] = []
        for partition, waiting in enumerate(self._waiting):
            if not waiting:
                continue
            slot = min(range(self.slots), key=free.__getitem__)
            clock = free[slot]
            for arrived, cost in waiting:
                clock += cost
                running.append((clock, cost, Result(partition=partition, arrived=arrived, finished=clock)))
            free[slot] = clock
            self._waiting[partition] = []
        running.sort(key=lambda item: item[0])
        self._running, self._shown = running, 0
        self._ends = max(free)
