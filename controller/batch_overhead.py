"""The fixed overhead of a micro-batch engine, from the starts and busy times of its batches.

Batch k takes ``o + busy_k`` where busy_k is the work of its busiest partition, and batch k+1 starts when it
ends; so o is the distance of two starts less busy_k. An engine that waited for data in between would look
slow, so the median over recent batches counts, and only consecutive batches of one run are compared.
"""

from collections import deque
from statistics import median


class BatchOverhead:
    def __init__(self, *, memory: int = 15) -> None:
        self._run = ""
        self._batch = -1
        self._started = 0.0
        self._busy: dict[int, float] = {}  # by task of the newest batch
        self._due: float | None = None  # when the newest batch would have started without overhead
        self._seen: deque[float] = deque(maxlen=memory)

    def started(self, *, run: str, batch: int, at: float) -> None:
        """A task of a batch began; the earliest of a batch counts, and is known when the next one begins."""
        if run == self._run and batch == self._batch:
            self._started = min(self._started, at)
            return
        if run == self._run and batch < self._batch:
            return
        if self._due is not None:
            self._seen.append(max(0.0, self._started - self._due))
        follows = run == self._run and batch == self._batch + 1 and self._busy
        self._due = self._started + max(self._busy.values()) if follows else None
        self._run, self._batch, self._started, self._busy = run, batch, at, {}

    def worked(self, *, run: str, batch: int, task: int, busy: float) -> None:
        if run == self._run and batch == self._batch:
            self._busy[task] = busy

    @property
    def value(self) -> float | None:
        return median(self._seen) if len(self._seen) >= 3 else None


def slot_share(overhead: float | None, response: float) -> float:
    """The share of a slot's time left for work when responses take ``response`` seconds.

    A batch of length L spends o on overhead, and with results visible as computed the mean response is
    L + o/2; so at a response y the batch may last y − o/2 and the share is 1 − o/(y − o/2).
    """
    if overhead is None:
        return 0.8
    length = response - overhead / 2
    return min(1.0, max(0.05, 1 - overhead / length)) if length > 0 else 0.05
