"""The gateway's loop: poll, decide, send, notice deliveries, report, commit; one thread, no waiting on anybody."""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.backlog import Backlog
from controller.batch import ADMITTED, Batch
from controller.budget import Budget, Reason
from controller.gate import Actuator, Gate
from controller.governor import cold_start
from controller.random_shedder import RandomShedder
from controller.seams import Shedder
from gateway.accounting import PartitionAccount
from gateway.arrival import arrivals
from gateway.budgets import from_message
from gateway.feedback import Feedback
from gateway.keys import KeyReader, key_reader
from gateway.settings import Settings
from gateway.transport import Flight, Group, Outcome, Sink, Source, TopicPartition
from protocol.messages import BudgetMessage, Report

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Owned:
    """All that this replica keeps for one raw partition while it holds it."""

    source: TopicPartition
    shedder: Shedder
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    account: PartitionAccount = field(default_factory=PartitionAccount)
    backlog: Backlog = field(default_factory=Backlog)
    flights: deque[Flight] = field(default_factory=deque)
    settled: int = -1  # raw offset up to which every record has its outcome; -1 before the first
    committed: int = -1
    polled_at: float = 0.0
    delivered: int = -1

    def settle(self) -> None:
        while self.flights and self.flights[0].settled:
            flight = self.flights.popleft()
            self.settled = flight.end
            if flight.chunk is not None:
                self.delivered = max(self.delivered, flight.chunk.last)


class Loop:
    """Only this class sees source, sink and decisions together; time and dice are handed in."""

    def __init__(
        self,
        settings: Settings,
        *,
        feedback: Feedback,
        clock: Callable[[], float],
        draws: Callable[[int], np.ndarray],
        backlog_of: Callable[[TopicPartition], tuple[int, int]],
        raw_partitions: int,
    ) -> None:
        self._settings = settings
        self._feedback = feedback
        self._clock = clock  # wall clock: arrivals are wall-clock times
        self._draws = draws
        self._backlog_of = backlog_of  # first and end offset of what a processing partition may still hold
        self._raw_partitions = max(1, raw_partitions)
        self._routes = {route.raw: route.processing for route in settings.topics}
        self._reader: KeyReader = key_reader(settings.key)
        self._owned: dict[TopicPartition, Owned] = {}
        self._budgets: dict[TopicPartition, Budget] = {}
        self._orders: dict[TopicPartition, tuple[int, int]] = {}  # epoch and sequence of the budget in force
        self._epoch = -1
        self._drained = False
        self.refused_budgets = 0
        self._source: Source
        self._sink: Sink

    def connect(self, source: Source, sink: Sink) -> None:
        self._source, self._sink = source, sink

    # --- one turn ---------------------------------------------------------------------------------

    def turn(self) -> int:
        """Take what is there, decide on it and send it; the number of records taken."""
        limits = self._settings.loop
        if (
            self._sink.in_flight_records > limits.in_flight_records
            or self._sink.in_flight_bytes > limits.in_flight_bytes
        ):
            self._source.pause()  # polling goes on, or the group would take this replica for dead
        elif self._sink.in_flight_records < limits.in_flight_records // 2:
            self._source.resume()
        taken = 0
        for group in self._source.poll(limits.poll_records, limits.poll_wait_seconds):
            owned = self._owned.get(group.source)
            if owned is not None:  # records of a partition that went away meanwhile are their new owner's
                self._decide(owned, group)
                taken += len(group)
        self._sink.serve(0)
        self._settle()
        return taken

    def _decide(self, owned: Owned, group: Group) -> None:
        now = self._clock()
        arrived = arrivals(group.timestamps_ms, by_broker=group.by_broker, now=now, settings=self._settings.arrival)
        keys = group.keys(self._reader)
        budget = self._budget(group.source)
        # Buckets fill by arrival within a poll, but never faster than real time: a backlog of old
        # records must not spend the rate of the hours it waited.
        at = np.maximum.accumulate(np.clip(arrived.seconds, min(owned.polled_at, now), now))
        owned.polled_at = now
        batch = Batch(at=at, outstanding=owned.backlog.outstanding * (budget.cost or 0.0))
        verdicts = owned.shedder.admit(batch, budget, self._draws(len(group)))
        outcome = Outcome(
            codes=verdicts.codes,
            arrived_ms=np.round(arrived.seconds * 1000).astype(np.int64),
            doubted=arrived.doubted,
            unreadable=keys.unreadable,
            decided_ms=int(now * 1000),
        )
        owned.account.enter(outcome)
        owned.account.without_key += keys.missing
        admitted = int((outcome.codes == ADMITTED).sum())
        flight = Flight(group.source, int(group.offsets[-1]) + 1, owned.backlog.admit(admitted) if admitted else None)
        owned.flights.append(flight)
        self._sink.send(group, outcome, flight)

    def _budget(self, source: TopicPartition) -> Budget:
        if (budget := self._budgets.get(source)) is not None:
            return budget
        settings = self._settings.controller
        if settings.load_manager == "none":
            return Budget(reason=Reason.PASS_THROUGH)
        share = max(1, settings.initial_records // self._raw_partitions)
        return cold_start(share, settings.period_seconds)

    def _settle(self) -> None:
        for owned in self._owned.values():
            owned.settle()

    def refused_by_topic(self, flight: Flight) -> None:
        """The sink parks a record that was admitted: book it there."""
        if (owned := self._owned.get(flight.source)) is not None and flight in owned.flights:
            owned.account.refused_by_topic()
            if flight.chunk is not None:
                owned.backlog.withdraw(flight.chunk)

    # --- what the control plane brings and takes --------------------------------------------------

    def take_budget(self, message: BudgetMessage) -> None:
        """Put a budget in force; one of an older leader, or of a kind this version does not know, is refused."""
        source = TopicPartition(message.topic, message.partition)
        order = (message.epoch, message.sequence)
        if message.epoch < self._epoch or order < self._orders.get(source, (-1, -1)):
            self.refused_budgets += 1
            return
        try:
            self._budgets[source] = from_message(message)
        except ValueError:
            self.refused_budgets += 1
            return
        self._epoch = max(self._epoch, message.epoch)
        self._orders[source] = order

    def feedback_came(self) -> None:
        for owned in self._owned.values():
            if (finished := self._feedback.finished_of(self._processing(owned.source))) is not None:
                owned.backlog.cut(finished)

    def reports(self) -> list[Report]:
        now = self._clock()
        return [self._report(owned, now) for owned in self._owned.values()]

    def _report(self, owned: Owned, now: float) -> Report:
        cost = self._budget(owned.source).cost or 0.0
        return Report(
            replica=self._settings.replica,
            incarnation=owned.incarnation,
            topic=owned.source.topic,
            partition=owned.source.partition,
            arrived=owned.account.arrived,
            admitted=owned.account.admitted,
            parked=owned.account.parked,
            shed=dict(owned.account.shed),
            admitted_work_s=owned.account.admitted * cost,
            outstanding=owned.backlog.outstanding,
            outstanding_work_s=owned.backlog.outstanding * cost,
            delivered=owned.delivered,
            at_s=now,
        )

    # --- commits and partitions -------------------------------------------------------------------

    def commit(self, *, wait: bool = False, only: Sequence[TopicPartition] | None = None) -> None:
        """Commit what has its outcome, and check that the books balance while doing so."""
        positions: dict[TopicPartition, int] = {}
        for owned in self._owned.values():
            if only is not None and owned.source not in only:
                continue
            if not owned.account.balanced:
                log.error("%s: arrived ≠ admitted + shed + parked: %s", owned.source, owned.account)
            if owned.settled > owned.committed or (wait and owned.settled >= 0):  # an earlier one may have failed
                positions[owned.source] = owned.settled
                owned.committed = owned.settled
        self._source.commit(positions, wait=wait)

    def drain(self, within: float) -> int:
        """Deliver and commit what is in flight; the number of records that stayed undelivered."""
        left = self._sink.flush(within)
        self._settle()
        self.commit(wait=True)
        self._drained = True
        return left

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for source in partitions:
            gate = Gate(
                Actuator(self._settings.controller.actuator),
                trickle_per_second=self._settings.controller.trickle_per_second,
            )
            owned = Owned(source, RandomShedder(gate), polled_at=self._clock())
            first, end = self._backlog_of(self._processing(source))
            owned.backlog.inherit(first=first, end=end)
            self._owned[source] = owned
        if partitions:
            log.info("took over %s", ", ".join(map(str, partitions)))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if not self._drained:
            self._sink.flush(self._settings.loop.drain_seconds)
        self._settle()
        self.commit(wait=True, only=partitions)
        self._forget(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for source in partitions:
            self._owned.pop(source, None)
        if partitions:
            log.info("gave up %s", ", ".join(map(str, partitions)))

    def _processing(self, source: TopicPartition) -> TopicPartition:
        return TopicPartition(self._routes[source.topic], source.partition)

    @property
    def accounts(self) -> dict[TopicPartition, PartitionAccount]:
        return {source: owned.account for source, owned in self._owned.items()}
