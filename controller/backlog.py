"""What was admitted to one partition and is not finished: chunks of records, cut by finished offsets.

Offsets alone mislead (transaction markers occupy them), so each chunk knows how many records it holds.
"""

from collections import deque
from dataclasses import dataclass

from controller.finished import Finished


@dataclass(slots=True)
class Chunk:
    """Records admitted together. Offsets are those of the processing topic, known once delivered."""

    count: int
    first: int = -1
    last: int = -1

    def delivered(self, offset: int) -> None:
        if self.first < 0 or offset < self.first:
            self.first = offset
        self.last = max(self.last, offset)


class Backlog:
    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._total = 0  # records in the chunks
        self._done = 0.0  # of these, records known to be finished

    def admit(self, count: int) -> Chunk:
        chunk = Chunk(count)
        self._chunks.append(chunk)
        self._total += count
        return chunk

    def withdraw(self, chunk: Chunk) -> None:
        """One record of the chunk went elsewhere after all."""
        if chunk.count > 0:
            chunk.count -= 1
            self._total -= 1

    def inherit(self, *, first: int, end: int) -> None:
        """Take over a partition: whatever lies in [first, end) counts as outstanding until reported."""
        if end > first:
            chunk = self.admit(end - first)
            chunk.first, chunk.last = first, end - 1

    def cut(self, finished: Finished) -> None:
        """Forget what has been finished."""
        while self._chunks and _share_done(self._chunks[0], finished) >= 1.0:
            self._total -= self._chunks.popleft().count
        self._done = 0.0
        for chunk in self._chunks:
            if chunk.first < 0 or chunk.first >= finished.end:
                break  # later chunks lie higher still
            self._done += chunk.count * _share_done(chunk, finished)

    @property
    def outstanding(self) -> int:
        return max(0, self._total - int(self._done))


def _share_done(chunk: Chunk, finished: Finished) -> float:
    if chunk.first < 0:
        return 1.0 if chunk.count == 0 else 0.0
    return finished.covered(chunk.first, chunk.last + 1) / (chunk.last + 1 - chunk.first)
