"""The seam to Kafka: where records come from, where they go, and how their fate is known.

The loop works on groups: consecutive records of one raw partition as columns, with the payloads left to the
transport that polled them. A compiled transport can keep those as pointers and never build Python objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from controller.backlog import Chunk
from gateway.keys import KeyReader


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Group(Protocol):
    """Consecutive records of one raw partition."""

    source: TopicPartition
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    by_broker: bool  # stamped by the broker (LogAppendTime)

    def __len__(self) -> int: ...

    def keys(self, reader: KeyReader) -> "Keys":
        """The shedding keys; rows that cannot be read come with their error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    missing: int
    unreadable: Mapping[int, str]  # row -> why


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is to become of each row of a group."""

    codes: NDArray[np.int8]  # ADMITTED, or an index into SHED_REASONS
    arrived_ms: NDArray[np.int64]
    doubted: NDArray[np.bool_]  # rows whose arrival must travel in a header
    unreadable: Mapping[int, str]  # rows to park, with their error; they outrank the codes
    decided_ms: int


class Flight:
    """A group on its way: settled once every record of it that goes anywhere has been delivered."""

    __slots__ = ("chunk", "end", "parked", "pending", "source")

    def __init__(self, source: TopicPartition, end: int, chunk: Chunk | None) -> None:
        self.source = source
        self.end = end  # the raw offset behind the group
        self.chunk = chunk  # the admitted records' place in the backlog
        self.pending = 0
        self.parked = 0  # admitted records that the processing topic refused

    @property
    def settled(self) -> bool:
        return self.pending == 0


class Ownership(Protocol):
    """Told by the source, from within poll, when partitions come and go."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They go to somebody else when this returns: deliver and commit now."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are somebody else's already: commit nothing."""


class Source(Protocol):
    def poll(self, limit: int, wait: float) -> Sequence[Group]: ...

    def commit(self, positions: Mapping[TopicPartition, int], *, wait: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Sink(Protocol):
    def send(self, group: Group, outcome: Outcome, flight: Flight) -> None:
        """Send every row where its outcome says; ``flight`` counts what is not yet delivered."""

    def serve(self, wait: float) -> None:
        """Let deliveries be noticed."""

    def flush(self, wait: float) -> int:
        """Wait for deliveries; the number of records still undelivered."""

    @property
    def in_flight_records(self) -> int: ...

    @property
    def in_flight_bytes(self) -> int: ...
