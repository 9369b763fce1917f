"""A model of the micro-batch engine: its overhead per batch, and how many slots its batches really keep busy.

Batch k takes ``o + busy_k`` where busy_k is the work of its busiest task, and batch k+1 starts when it ends; so
the overhead o is the distance of two starts less busy_k. An engine that waited for data in between would look
slow, so the median over recent batches counts, and only consecutive batches of one run are compared. The
parallelism is the work of all tasks over that of the busiest: four slots with all load on one partition are one.
"""

from collections import deque
from statistics import median

_SHARE_UNKNOWN = 0.8  # of a slot's time is taken to be left for work before anything was measured


class BatchModel:
    def __init__(self, *, memory: int = 5) -> None:
        self._run = ""
        self._batch = -1
        self._started = 0.0
        self._busy: dict[int, float] = {}  # by task of the newest batch
        self._due: float | None = None  # when the newest batch would have started without overhead
        self._overheads: deque[float] = deque(maxlen=memory)
        self._parallelisms: deque[float] = deque(maxlen=memory)

    def started(self, *, run: str, batch: int, at: float) -> None:
        """A task of a batch began; the earliest of a batch counts, and is known when the next one begins."""
        if run == self._run and batch == self._batch:
            self._started = min(self._started, at)
            return
        if run == self._run and batch < self._batch:
            return
        if self._due is not None:
            self._overheads.append(max(0.0, self._started - self._due))
        busiest = max(self._busy.values(), default=0.0)
        if busiest > 0:
            self._parallelisms.append(sum(self._busy.values()) / busiest)
        follows = run == self._run and batch == self._batch + 1 and busiest > 0
        self._due = self._started + busiest if follows else None
        self._run, self._batch, self._started, self._busy = run, batch, at, {}

    def worked(self, *, run: str, batch: int, task: int, busy: float) -> None:
        """The busy seconds of a task so far."""
        if run == self._run and batch == self._batch:
            self._busy[task] = busy

    @property
    def overhead(self) -> float | None:
        """Seconds per batch; None until three batches were seen."""
        return median(self._overheads) if len(self._overheads) >= 3 else None

    @property
    def parallelism(self) -> float | None:
        """Slots kept busy; None until three batches were seen."""
        return median(self._parallelisms) if len(self._parallelisms) >= 3 else None


def slot_share(overhead: float | None, response: float) -> float:
    """The share of a slot's time left for work when responses take ``response`` seconds.

    A batch of length L spends o on overhead, and with results visible as computed the mean response is
    L + o/2; so at a response y the batch may last y − o/2 and the share is 1 − o/(y − o/2).
    """
    if overhead is None:
        return _SHARE_UNKNOWN
    length = response - overhead / 2
    return min(1.0, max(0.05, 1 - overhead / length)) if length > 0 else 0.05
