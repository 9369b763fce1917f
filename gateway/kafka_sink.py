"""Admitted, shed and parked records to Kafka by an idempotent producer, with every delivery accounted for."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from controller.batch import ADMITTED, SHED_REASONS
from gateway.errors import ClusterError
from gateway.kafka_source import MessageGroup
from gateway.settings import Settings
from gateway.transport import Flight, Group, Outcome
from protocol import topics as names

log = logging.getLogger(__name__)

Header = tuple[str, bytes | None]

# What a topic says of one record, however often it is tried again: the record is parked.
_REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
    KafkaError.RECORD_LIST_TOO_LARGE,
}
_LARGEST_MESSAGE = 90_000_000  # below a broker's default socket.request.max.bytes; topics set the real limit


class KafkaSink:
    def __init__(self, settings: Settings, *, refused: Callable[[Flight], None]) -> None:
        self._routes = {route.raw: route.processing for route in settings.topics}
        self._topics = names.Topics(settings.pipeline)
        self._keep_shed = settings.shed.keep == "all"
        self._origin = settings.origin
        self._refused = refused  # told when an admitted record is parked after all
        self._fatal: str | None = None
        self._records = 0
        self._bytes = 0
        self._producer = Producer(producer_properties(settings, self._on_error), logger=log)

    @property
    def in_flight_records(self) -> int:
        return self._records

    @property
    def in_flight_bytes(self) -> int:
        return self._bytes

    def send(self, group: Group, outcome: Outcome, flight: Flight) -> None:
        assert isinstance(group, MessageGroup), "a sink sends what the source of its own kind polled"
        processing = self._routes[group.source.topic]
        partition = group.source.partition
        codes = outcome.codes.tolist()
        for row, message in enumerate(group.messages):
            if row in outcome.unreadable:
                self._park(message, outcome.unreadable[row], flight)
            elif codes[row] == ADMITTED:
                headers = message.headers()
                if self._origin or outcome.doubted[row]:
                    headers = [*(headers or ()), *self._stamps(message, outcome, row)]
                self._produce(processing, partition, message, headers, flight, admitted=True)
            elif self._keep_shed:
                headers = [
                    *(message.headers() or ()),
                    *_provenance(message),
                    (names.REASON, SHED_REASONS[codes[row]].encode()),
                    (names.DECIDED, str(outcome.decided_ms).encode()),
                ]
                self._produce(self._topics.shed, None, message, headers, flight, admitted=False)

    def serve(self, wait: float) -> None:
        self._producer.poll(wait)
        if self._fatal:
            raise ClusterError(self._fatal)

    def flush(self, wait: float) -> int:
        self._producer.flush(wait)
        return self._records

    def _stamps(self, message: Message, outcome: Outcome, row: int) -> list[Header]:
        stamps: list[Header] = []
        if self._origin:
            stamps.append((names.ORIGIN, _origin(message)))
        if outcome.doubted[row]:
            stamps.append((names.ARRIVED, str(int(outcome.arrived_ms[row])).encode()))
        return stamps

    def _park(self, message: Message, error: str, flight: Flight, *, without_value: bool = False) -> None:
        headers = [*_provenance(message), (names.ERROR, error.encode())]
        if without_value:
            headers.append((names.HEADER_PREFIX + "size", str(len(message.value() or b"")).encode()))
            value, key = None, None
        else:
            headers = [*(message.headers() or ()), *headers]
            value, key = message.value(), message.key()

        def delivered(problem: KafkaError | None, _: Message) -> None:
            self._landed(len(value or b""), flight)
            if problem is None:
                return
            if problem.code() in _REFUSALS and not without_value:
                self._park(message, f"{error}; parked without its value: {problem.str()}", flight, without_value=True)
            else:
                self._fail(problem, self._topics.parked)

        self._enqueue(self._topics.parked, None, key, value, message.timestamp()[1], headers, delivered, flight)

    def _produce(
        self,
        topic: str,
        partition: int | None,
        raw: Message,
        headers: Sequence[Header] | None,
        flight: Flight,
        *,
        admitted: bool,
    ) -> None:
        delivered = partial(self._delivered, raw, flight, admitted)
        try:
            self._enqueue(topic, partition, raw.key(), raw.value(), raw.timestamp()[1], headers, delivered, flight)
        except KafkaException as error:  # refused by the client itself: larger than any topic would take
            if error.args[0].code() not in _REFUSALS:
                raise
            if admitted:
                self._refused(flight)
            self._park(raw, f"{topic}: {error.args[0].str()}", flight, without_value=True)

    def _enqueue(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header] | None,
        delivered: Callable[[KafkaError | None, Message], None],
        flight: Flight,
    ) -> None:
        options: dict[str, Any] = {"on_delivery": delivered}
        if partition is not None:
            options["partition"] = partition
        if headers:
            options["headers"] = list(headers)
        if timestamp_ms > 0:  # librdkafka reads 0 as "now"; records without a timestamp have -1
            options["timestamp"] = timestamp_ms
        while True:
            try:
                self._producer.produce(topic, value, key, **options)
                break
            except BufferError:  # the producer's queue is full: wait for deliveries, take nothing new
                self.serve(0.1)
        flight.pending += 1
        self._records += 1
        self._bytes += len(value or b"")

    def _delivered(
        self, raw: Message, flight: Flight, admitted: bool, problem: KafkaError | None, written: Message
    ) -> None:
        if problem is None:
            if admitted and flight.chunk is not None:
                flight.chunk.delivered(written.offset())
        elif problem.code() in _REFUSALS:
            if admitted:
                self._refused(flight)
            self._park(raw, f"{written.topic()}: {problem.str()}", flight)
        else:
            self._fail(problem, written.topic())
            return  # stays pending: its offset is never committed
        self._landed(len(raw.value() or b""), flight)

    def _landed(self, size: int, flight: Flight) -> None:
        flight.pending -= 1
        self._records -= 1
        self._bytes -= size

    def _fail(self, problem: KafkaError, topic: str) -> None:
        self._fatal = self._fatal or (
            f"{topic}: records cannot be written ({problem.str()}); "
            "nothing is lost, they are read again after a restart. Run `spillway topics check`"
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            self._fatal = f"kafka: {error.str()}"
        else:
            log.warning("kafka: %s", error.str())


def producer_properties(settings: Settings, on_error: Any) -> dict[str, Any]:
    return {
        "linger.ms": 5,
        "compression.type": "lz4",
        "queue.buffering.max.messages": max(200_000, 2 * settings.loop.in_flight_records),
        "queue.buffering.max.kbytes": max(1_048_576, 2 * settings.loop.in_flight_bytes // 1024),
        "reconnect.backoff.max.ms": 2_000,
        **settings.client_properties(),
        "client.id": settings.replica,
        "enable.idempotence": True,
        "acks": "all",
        "message.max.bytes": _LARGEST_MESSAGE,
        "message.timeout.ms": 0,  # an outage of the broker delays records, it does not lose them
        "error_cb": on_error,
    }


def _origin(message: Message) -> bytes:
    return names.origin(message.topic(), message.partition(), message.offset())


def _provenance(message: Message) -> list[Header]:
    return [(names.ORIGIN, _origin(message)), (names.TIMESTAMP, str(message.timestamp()[1]).encode())]
