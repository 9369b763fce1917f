"""Feedback from the executors' Python workers to the gateways: best effort, never at the job's expense."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from protocol.encoding import encode
from protocol.messages import BatchStarted, Progress
from protocol.topics import Topics, feedback_key
from spark_job.errors import SettingError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_FLUSH_S = 2.0
_log = logging.getLogger("spillway.feedback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Where and how often an instrumented operator reports; travels with it to the executors."""

    pipeline: str
    bootstrap_servers: str
    kafka: Mapping[str, str] = field(default_factory=dict)  # librdkafka settings: TLS, SASL and the like
    every_s: float = 0.1
    slots: int | None = None  # tasks that run at once; None: the cluster's cores when the query is built

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise SettingError("every_s", f"is {self.every_s}; it must be above 0")
        if self.slots is not None and self.slots < 1:
            raise SettingError("slots", f"is {self.slots}; it must be at least 1")

    def publisher(self) -> "Publisher":
        """This process's publisher for these settings, made when first asked for: after Spark's fork."""
        key = (os.getpid(), self.pipeline, self.bootstrap_servers, tuple(sorted(self.kafka.items())))
        if key not in _publishers:
            _publishers[key] = Publisher(self)
        return _publishers[key]


class Publisher:
    """One producer on the feedback topic. What it cannot deliver it drops, counts, and logs once."""

    def __init__(self, feedback: Feedback) -> None:
        self.dropped = 0
        self._topic = Topics(feedback.pipeline).feedback
        self._stuck = False  # the last flush left messages behind: do not wait again until one arrives
        self._producer: Producer | None = None
        try:
            import confluent_kafka

            self._producer = confluent_kafka.Producer(_settings(feedback) | {"error_cb": self._failed})
        except Exception as error:  # a wrong setting must not fail the user's task
            self._failed(error)

    def send(self, message: BatchStarted | Progress) -> None:
        if self._producer is None:
            self.dropped += 1
            return
        try:
            self._producer.produce(self._topic, encode(message), feedback_key(message), on_delivery=self._delivered)
            self._producer.poll(0)
        except Exception as error:
            self._drop(error)

    def flush(self) -> None:
        """Waits for delivery, bounded, and not at all while the cluster does not answer."""
        if self._producer is None:
            return
        try:
            self._stuck = self._producer.flush(0.0 if self._stuck else _FLUSH_S) > 0
        except Exception as error:
            self._failed(error)

    def _delivered(self, error: "KafkaError | None", _: "Message") -> None:
        if error is None:
            self._stuck = False
        else:
            self._drop(error)

    def _drop(self, error: object) -> None:
        self.dropped += 1
        self._failed(error)

    def _failed(self, error: object) -> None:
        place = (os.getpid(), self._topic)
        if place not in _said:
            _said.add(place)
            _log.warning("feedback to %s fails, the job goes on without it: %s", self._topic, error)


_publishers: dict[tuple[Any, ...], Publisher] = {}
_said: set[tuple[int, str]] = set()


def _settings(feedback: Feedback) -> dict[str, Any]:
    return {
        "linger.ms": 5,
        "acks": "1",
        "compression.type": "none",
        "message.timeout.ms": 5000,
        "queue.buffering.max.messages": 10_000,
        "log_level": 0,  # its complaints would repeat for ever; ours is said once
        "client.id": f"spillway-feedback-{feedback.pipeline}",
        **feedback.kafka,
        "bootstrap.servers": feedback.bootstrap_servers,
    }
