"""What one attempt of a task has received and finished, per topic-partition, and the messages that say so."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.histogram import bucket
from protocol.messages import BatchStarted, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which work this is: the same for everything one attempt publishes."""

    query: str
    run: str
    batch: int
    task: int
    attempt: int
    slots: int


@dataclass(slots=True, kw_only=True)
class _Part:
    """One topic-partition's share of the attempt."""

    first: int
    next: int
    started_s: float
    received: int = 0
    count: int = 0
    busy_s: float = 0.0
    response_sum_s: float = 0.0
    response_max_s: float = 0.0
    responses: dict[int, int] = field(default_factory=dict)
    unsaid: bool = True  # changed since the last message about it


class Attempt:
    """Adds up what an attempt does; time is the caller's."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._parts: dict[tuple[str, int], _Part] = {}

    def receive(self, topic: str, partition: int, *, first: int, records: int, now_s: float) -> bool:
        """Notes records handed to the task; True if they are the first of their topic-partition."""
        part = self._parts.get((topic, partition))
        if new := part is None:
            part = self._parts[topic, partition] = _Part(first=first, next=first, started_s=now_s)
        assert part is not None
        part.received += records
        part.unsaid = True
        return new

    def finish(
        self,
        topic: str,
        partition: int,
        *,
        next_offset: int,
        busy_s: float,
        arrivals_s: Sequence[float],
        left_s: float,
    ) -> None:
        """Notes records whose results left the worker at ``left_s``, one arrival for each of them."""
        part = self._parts[topic, partition]
        part.next = max(part.next, next_offset)
        part.count += len(arrivals_s)
        part.busy_s += busy_s
        part.unsaid = True
        responses = part.responses
        for arrived_s in arrivals_s:
            response_s = left_s - arrived_s
            if response_s <= 0.0:  # clocks disagree
                response_s = 0.0
            elif response_s > part.response_max_s:
                part.response_max_s = response_s
            part.response_sum_s += response_s
            index = bucket(response_s)
            responses[index] = responses.get(index, 0) + 1

    def waste(self, topic: str, partition: int, busy_s: float) -> None:
        """Notes engine time whose results will never leave, since the attempt ends first."""
        part = self._parts[topic, partition]
        part.busy_s += busy_s
        part.unsaid = True

    def started(self, topic: str, partition: int) -> BatchStarted:
        part, who = self._parts[topic, partition], self.identity
        return BatchStarted(
            query=who.query,
            run=who.run,
            batch=who.batch,
            topic=topic,
            partition=partition,
            task=who.task,
            attempt=who.attempt,
            first=part.first,
            received=part.received,
            slots=who.slots,
            started_s=part.started_s,
        )

    def progress(self, *, now_s: float, done: bool = False) -> list[Progress]:
        """One message per topic-partition with news; with ``done`` one for each."""
        messages = []
        who = self.identity
        for (topic, partition), part in self._parts.items():
            if not (part.unsaid or done):
                continue
            part.unsaid = False
            messages.append(
                Progress(
                    query=who.query,
                    run=who.run,
                    batch=who.batch,
                    topic=topic,
                    partition=partition,
                    task=who.task,
                    attempt=who.attempt,
                    first=part.first,
                    next=part.next,
                    count=part.count,
                    received=part.received,
                    busy_s=part.busy_s,
                    response_sum_s=part.response_sum_s,
                    response_max_s=part.response_max_s,
                    responses={str(index): n for index, n in part.responses.items()},
                    slots=who.slots,
                    started_s=part.started_s,
                    at_s=now_s,
                    done=done,
                )
            )
        return messages
