"""Whole topics read from outside: plain consumers without a group, committed records only, up to known ends."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from gateway.cluster import ANSWER_SECONDS, explain, patiently, quiet_client, unreachable
from gateway.errors import ClusterError

Partition = tuple[str, int]

_BATCH = 10_000
_POLL_S = 0.02
_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets from ``low`` on and below ``high``; transaction markers and compaction leave gaps in it."""

    low: int
    high: int

    def __len__(self) -> int:
        return max(0, self.high - self.low)


class Offsets:
    """Where topics begin and end, as a reader of committed records sees it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._servers = str(properties["bootstrap.servers"])
        self._troubles: list[KafkaError] = []
        self._admin = quiet_client(AdminClient, properties, self._troubles.append)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of those of ``topics`` that exist."""
        wanted = list(dict.fromkeys(topics))
        found: dict[str, int] = {}
        answers = self._admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER_SECONDS)
        for topic in wanted:
            try:
                found[topic] = len(answers[topic].result().partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._told(error, f"look at topic {topic}") from None
        return found

    def spans(self, topics: Iterable[str]) -> dict[Partition, Span]:
        """The span of every partition of those of ``topics`` that exist."""
        parts = [(topic, number) for topic, count in self.partitions(topics).items() for number in range(count)]
        low = self._ask(parts, OffsetSpec.earliest())
        high = self._ask(parts, OffsetSpec.latest())
        return {part: Span(low=low[part], high=high[part]) for part in parts}

    def _ask(self, parts: Iterable[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        def ask() -> dict[Partition, int]:
            request = {TopicPartition(*part): spec for part in parts}
            if not request:
                return {}
            answers = self._admin.list_offsets(
                request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
            )
            return {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}

        try:
            return patiently(ask)
        except KafkaException as error:
            raise self._told(error, "ask for offsets") from None

    def _told(self, error: KafkaException, what: str) -> ClusterError:
        if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            self._admin.poll(0)  # hands over what librdkafka has met meanwhile
            return ClusterError(unreachable(self._servers, ANSWER_SECONDS, self._troubles))
        return ClusterError(explain(error, what))


class Reading:
    """Partitions read from ``starts``, then on from where the last ``until`` stopped, each record once."""

    def __init__(self, properties: Mapping[str, Any], starts: Mapping[Partition, int]) -> None:
        self._servers = str(properties["bootstrap.servers"])
        self._troubles: list[KafkaError] = []
        self._next = dict(starts)
        settings = {
            **properties,
            "group.id": "spillway-reader",  # never joined, never committed to
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # retention may have moved the start meanwhile
            "check.crcs": False,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 32_768,
        }
        self._consumer = quiet_client(Consumer, settings, self._troubles.append)
        if self._next:
            self._consumer.assign([TopicPartition(*part, start) for part, start in starts.items()])

    def until(self, ends: Mapping[Partition, int]) -> Iterator[list[Message]]:
        """Batches until every partition has been read to its end; may run over an end, never short of it."""
        open_parts = {part for part, end in ends.items() if self._next[part] < end}
        heard = time.monotonic()
        while open_parts:
            messages = self._consumer.consume(_BATCH, timeout=_POLL_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_S:
                raise ClusterError(unreachable(self._servers, _SILENCE_S, self._troubles))
            batch = []
            for message in messages:
                part = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    batch.append(message)
                    self._next[part] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # The offset behind everything readable: behind markers and aborted records too.
                    self._next[part] = max(self._next[part], message.offset())
                else:
                    raise ClusterError(explain(KafkaException(error), f"read topic {part[0]}"))
                if part in open_parts and self._next[part] >= ends[part]:
                    open_parts.discard(part)
            if batch:
                yield batch

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
