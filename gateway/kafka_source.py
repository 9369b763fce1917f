"""Raw records from Kafka by confluent-kafka: cooperative rebalances, commits only when told."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from gateway.errors import ClusterError
from gateway.keys import KeyReader, Unreadable
from gateway.settings import Settings
from gateway.transport import Group, Keys, Ownership, TopicPartition

log = logging.getLogger(__name__)


class MessageGroup:
    """A group whose payloads are confluent-kafka messages."""

    __slots__ = ("by_broker", "messages", "offsets", "source", "timestamps_ms")

    def __init__(self, source: TopicPartition, messages: list[Message]) -> None:
        self.source = source
        self.messages = messages
        count = len(messages)
        self.offsets = np.fromiter((m.offset() for m in messages), np.int64, count)
        self.timestamps_ms = np.fromiter((m.timestamp()[1] for m in messages), np.int64, count)
        self.by_broker = messages[0].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME

    def __len__(self) -> int:
        return len(self.messages)

    def keys(self, reader: KeyReader) -> Keys:
        missing = 0
        unreadable: dict[int, str] = {}
        for row, message in enumerate(self.messages):
            try:
                if reader(message.key(), message.value(), message.headers()) is None:
                    missing += 1
            except Unreadable as error:
                unreadable[row] = str(error)
        return Keys(missing=missing, unreadable=unreadable)


class KafkaSource:
    def __init__(self, settings: Settings, ownership: Ownership) -> None:
        self._ownership = ownership
        self._paused = False
        self._fatal: str | None = None
        self._consumer = Consumer(consumer_properties(settings, self._on_error), logger=log)
        self._consumer.subscribe(
            [route.raw for route in settings.topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self, limit: int, wait: float) -> Sequence[Group]:
        groups: dict[TopicPartition, list[Message]] = {}
        for message in self._consumer.consume(limit, wait):
            if (error := message.error()) is not None:
                self._notice(error)
                continue
            groups.setdefault(TopicPartition(message.topic(), message.partition()), []).append(message)
        if self._fatal:
            raise ClusterError(self._fatal)
        return [MessageGroup(source, messages) for source, messages in groups.items()]

    def commit(self, positions: Mapping[TopicPartition, int], *, wait: bool) -> None:
        if not positions:
            return
        offsets = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=not wait)
        except KafkaException as error:
            # Nothing is lost: what is not committed is read again.
            log.warning("offsets were not committed and will be tried again: %s", error.args[0].str())

    def pause(self) -> None:
        if not self._paused:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False

    def close(self) -> None:
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        self._ownership.assigned(_ours(partitions))
        consumer.incremental_assign(partitions)
        if self._paused:
            consumer.pause(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        self._ownership.revoked(_ours(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        self._ownership.lost(_ours(partitions))

    def _notice(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._fatal = f"topics: a raw topic has gone ({error.str()}); create it again or take it out of topics"
        elif error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self._fatal = f"kafka: not allowed to read ({error.str()}); grant READ on the raw topics and the group"
        elif error.fatal():
            self._fatal = f"kafka: {error.str()}"
        else:
            log.warning("kafka: %s", error.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            self._fatal = f"kafka: {error.str()}"
        else:
            log.warning("kafka: %s", error.str())


def consumer_properties(settings: Settings, on_error: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "session.timeout.ms": int(settings.kafka.session_timeout_seconds * 1000),
        "heartbeat.interval.ms": max(100, int(settings.kafka.session_timeout_seconds * 1000 / 4)),
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": 65_536,
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 2_000,
        **settings.client_properties(),
        "group.id": settings.kafka.group_id or settings.pipeline,
        "client.id": settings.replica,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "partition.assignment.strategy": "cooperative-sticky",
        "error_cb": on_error,
    }
    if settings.kafka.static_member:
        properties["group.instance.id"] = settings.kafka.static_member
    return properties


def _ours(partitions: list[KafkaTopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]
