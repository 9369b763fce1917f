"""Who leads: the replica that holds the only partition of <pipeline>.leader; its claim's offset is the epoch."""

import logging
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from gateway.control_plane import said_elsewhere
from gateway.kafka_source import consumer_properties
from gateway.settings import Settings
from protocol.encoding import encode
from protocol.messages import Claim
from protocol.topics import Topics

log = logging.getLogger(__name__)


class Leadership:
    def __init__(self, settings: Settings) -> None:
        self._replica = settings.replica
        self._topic = Topics(settings.pipeline).leader
        self._epoch: int | None = None
        properties = consumer_properties(settings, said_elsewhere)
        properties["group.id"] = f"{settings.pipeline}-leader"
        properties["client.id"] = f"{settings.replica}-leader"
        properties.pop("group.instance.id", None)
        self._consumer = Consumer(properties, logger=log)
        self._producer = Producer(
            {**settings.client_properties(), "client.id": f"{settings.replica}-leader", "acks": "all", "linger.ms": 0},
            logger=log,
        )
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_gone, on_lost=self._on_gone
        )

    @property
    def epoch(self) -> int | None:
        """The epoch under which this replica leads; None while it does not."""
        return self._epoch

    def poll(self) -> None:
        self._consumer.poll(0)  # claims of others need no reading: the assignment decides
        self._producer.poll(0)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            claim = Claim(replica=self._replica, at_s=time.time())
            self._producer.produce(self._topic, encode(claim), partition=0, on_delivery=self._claimed)

    def _claimed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            log.error("leadership could not be claimed: %s", error.str())
        elif self._consumer.assignment():  # it may have gone to somebody else meanwhile
            self._epoch = message.offset()
            log.info("%s leads with epoch %d", self._replica, self._epoch)

    def _on_gone(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and self._epoch is not None:
            log.info("%s does not lead any more", self._replica)
            self._epoch = None

    def close(self) -> None:
        self._consumer.close()
