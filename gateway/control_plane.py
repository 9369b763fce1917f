"""The pipeline's own topics: reads feedback, reports and control in order, writes reports and budgets."""

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from gateway.errors import ClusterError
from gateway.settings import Settings
from protocol.encoding import Refused, decode, encode
from protocol.messages import BatchStarted, BudgetMessage, Progress, Report
from protocol.topics import Topics, budget_key, report_key

log = logging.getLogger(__name__)

_MOST_PER_POLL = 2_000
_REFUSALS_LOGGED = 5  # of each topic; the rest is only counted

PlaneMessage = BatchStarted | Progress | Report | BudgetMessage


class ControlPlane:
    """One reader for all three topics, from their beginning; no group, no commits."""

    def __init__(self, settings: Settings, *, receive: Callable[[PlaneMessage], None]) -> None:
        self._topics = Topics(settings.pipeline)
        self._receive = receive
        self.refused: dict[str, int] = {}
        self._consumer = Consumer(
            {
                "reconnect.backoff.max.ms": 2_000,
                "auto.offset.reset": "earliest",
                **settings.client_properties(),
                "group.id": f"{settings.pipeline}-control",
                "client.id": f"{settings.replica}-control",
                "enable.auto.commit": False,
                "error_cb": said_elsewhere,
            },
            logger=log,
        )
        self._producer = Producer(
            {
                "linger.ms": 5,  # a period's messages in one request
                "reconnect.backoff.max.ms": 2_000,
                **settings.client_properties(),
                "client.id": f"{settings.replica}-control",
                "acks": 1,
                "message.timeout.ms": 5_000,  # an old budget is worth less than none
                "error_cb": said_elsewhere,
            },
            logger=log,
        )
        self._assignment = [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in (self._topics.control, self._topics.feedback, self._topics.reports)
            for partition in self._partitions_of(topic)
        ]
        self._consumer.assign(self._assignment)

    def _partitions_of(self, topic: str) -> list[int]:
        metadata = self._consumer.list_topics(topic, timeout=10).topics[topic]
        if metadata.error is not None:
            raise ClusterError(f"topic {topic} is missing; `spillway topics apply` creates it")
        return list(metadata.partitions)

    def catch_up(self, within: float) -> None:
        """Read what the topics hold by now; afterwards the state is that of a replica that never stopped."""
        ends = {
            (tp.topic, tp.partition): self._consumer.get_watermark_offsets(tp, timeout=10) for tp in self._assignment
        }
        behind = {key for key, (low, high) in ends.items() if high > low}
        deadline = time.monotonic() + within
        while behind and time.monotonic() < deadline:
            self.poll(0.1)
            for tp in self._consumer.position(self._assignment):
                if tp.offset >= ends[tp.topic, tp.partition][1]:
                    behind.discard((tp.topic, tp.partition))

    def poll(self, wait: float = 0.0) -> int:
        messages = self._consumer.consume(_MOST_PER_POLL, wait)
        for message in messages:
            self._read(message)
        self._producer.poll(0)
        return len(messages)

    def _read(self, message: Message) -> None:
        if message.error() is not None:
            if message.error().code() == KafkaError._PARTITION_EOF:
                return
            log.warning("control plane: %s", message.error().str())
            return
        try:
            decoded = decode(message.value())
            if isinstance(decoded, BatchStarted | Progress | Report | BudgetMessage):
                self._receive(decoded)
                return
            raise Refused(f"a {decoded.kind} does not belong here")
        except Refused as error:
            topic = message.topic()
            self.refused[topic] = self.refused.get(topic, 0) + 1
            if self.refused[topic] <= _REFUSALS_LOGGED:
                log.warning("refused a message on %s at offset %d: %s", topic, message.offset(), error)

    def publish_report(self, report: Report) -> None:
        self._produce(self._topics.reports, report_key(report), encode(report))

    def publish_budget(self, budget: BudgetMessage) -> None:
        self._produce(self._topics.control, budget_key(budget), encode(budget))

    def _produce(self, topic: str, key: bytes, value: bytes) -> None:
        try:
            self._producer.produce(topic, value, key)
        except BufferError:
            log.warning("control plane: %s is too slow, a message was dropped", topic)

    def close(self) -> None:
        self._producer.flush(2)
        self._consumer.close()


def said_elsewhere(error: Any) -> None:
    """The data path's clients report the same broker; once is enough."""
