"""The gateway as a process: checks the cluster, wires the parts, runs until told to stop, drains."""

import logging
import signal
import time
from types import FrameType

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from gateway.budgets import to_message
from gateway.cluster import quiet_client, unreachable
from gateway.control_plane import ControlPlane, PlaneMessage
from gateway.errors import ClusterError
from gateway.feedback import Feedback
from gateway.kafka_sink import KafkaSink
from gateway.kafka_source import KafkaSource
from gateway.leader import Leader
from gateway.leadership import Leadership
from gateway.loop import Loop
from gateway.settings import Settings
from gateway.transport import TopicPartition
from protocol.messages import BatchStarted, BudgetMessage, Progress, Report
from protocol.topics import Topics

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 10.0  # seconds that a broker may take to answer at the start


class Service:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = False
        self._fresh_feedback = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; raises ClusterError where the cluster is not as it must be."""
        settings = self._settings
        raw_partitions = check_cluster(settings)
        self._feedback = Feedback({route.processing for route in settings.topics})
        self._leader = Leader(settings.controller, settings.feedback, self._feedback)
        self._loop = Loop(
            settings,
            feedback=self._feedback,
            clock=time.time,
            draws=np.random.default_rng().random,
            backlog_of=self._backlog_of,
            raw_partitions=raw_partitions,
        )
        self._plane = ControlPlane(settings, receive=self._receive)
        self._plane.catch_up(within=_ANSWER_WITHIN)
        leadership = Leadership(settings)
        sink = KafkaSink(settings, refused=self._loop.refused_by_topic)
        source = KafkaSource(settings, self._loop)
        self._loop.connect(source, sink)
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._on_signal)
        log.info("running: %s", ", ".join(f"{r.raw} → {r.processing}" for r in settings.topics))
        try:
            self._run(leadership)
        finally:
            summary = _summary(self._loop)
            left = self._loop.drain(settings.loop.drain_seconds)
            if left:
                log.warning("%d records were not delivered in time; they are read again after a restart", left)
            leadership.close()
            source.close()
            self._plane.close()
        log.info("stopped: %s", summary)

    def _run(self, leadership: Leadership) -> None:
        period = self._settings.controller.period_seconds
        report_at = step_at = commit_at = time.monotonic()
        sequence, led = 0, None  # the epoch under which this replica has begun to lead
        while not self._stop:
            self._loop.turn()
            self._plane.poll()
            if self._fresh_feedback:
                self._loop.feedback_came()
                self._fresh_feedback = False
            leadership.poll()
            now = time.monotonic()
            if now >= report_at:
                for report in self._loop.reports():
                    self._plane.publish_report(report)
                report_at = now + period / 2
            if now >= step_at:
                step_at = max(step_at + period, now)
                epoch = leadership.epoch
                if epoch is not None and epoch != led:
                    self._leader.begin()
                led = epoch
                if epoch is not None:
                    sequence += 1
                    for target, budget in self._leader.step(now).items():
                        self._plane.publish_budget(
                            to_message(budget, source=target, epoch=epoch, sequence=sequence, at=time.time())
                        )
            if now >= commit_at:
                self._loop.commit()
                commit_at = now + self._settings.loop.commit_seconds

    def _receive(self, message: PlaneMessage) -> None:
        match message:
            case Progress() | BatchStarted():
                self._feedback.absorb(message)
                self._fresh_feedback = True
            case Report():
                self._leader.report(message)
            case BudgetMessage():
                self._loop.take_budget(message)

    def _backlog_of(self, processing: TopicPartition) -> tuple[int, int]:
        """What the processing partition may still hold unfinished, as far as feedback tells."""
        finished = self._feedback.finished_of(processing)
        if finished is None:
            return 0, 0  # no job has ever reported: nothing is known to be waiting
        consumer = quiet_client(Consumer, {**self._settings.client_properties(), "group.id": "unused"})
        try:
            low, high = consumer.get_watermark_offsets(
                KafkaTopicPartition(processing.topic, processing.partition), timeout=_ANSWER_WITHIN
            )
        except KafkaException as error:
            log.warning("%s: its end is unknown (%s); starting without its backlog", processing, error)
            return 0, 0
        finally:
            consumer.close()
        return max(low, finished.end), high

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop = True


def check_cluster(settings: Settings) -> int:
    """The number of raw partitions; raises ClusterError with the fix where something is missing."""
    troubles: list[KafkaError] = []
    probe = quiet_client(Consumer, {**settings.client_properties(), "group.id": "unused"}, troubles.append)
    try:
        topics = probe.list_topics(timeout=_ANSWER_WITHIN).topics
    except KafkaException:
        raise ClusterError(unreachable(settings.kafka.bootstrap_servers, _ANSWER_WITHIN, troubles)) from None
    finally:
        probe.close()
    total = 0
    for route in settings.topics:
        for topic, fix in ((route.raw, "create it"), (route.processing, "`spillway topics apply` creates it")):
            if topic not in topics:
                raise ClusterError(f"topics: {topic} does not exist; {fix}")
        raw, processing = len(topics[route.raw].partitions), len(topics[route.processing].partitions)
        if processing < raw:
            raise ClusterError(
                f"topics: {route.processing} has {processing} partitions, {route.raw} has {raw}; "
                "`spillway topics apply` adds the missing ones"
            )
        total += raw
    own = Topics(settings.pipeline)
    needed = [own.feedback, own.reports, own.control, own.leader, own.parked]
    if settings.shed.keep != "none":
        needed.append(own.shed)
    if missing := [topic for topic in needed if topic not in topics]:
        raise ClusterError(f"topics: {', '.join(missing)} missing; `spillway topics apply` creates them")
    return total


def _summary(loop: Loop) -> str:
    accounts = loop.accounts.values()
    return ", ".join(
        (
            f"{sum(a.arrived for a in accounts)} arrived",
            f"{sum(a.admitted for a in accounts)} admitted",
            f"{sum(a.shed.total() for a in accounts)} shed",
            f"{sum(a.parked for a in accounts)} parked",
        )
    )
