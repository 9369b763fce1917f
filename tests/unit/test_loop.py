"""The loop with source and sink in memory: what it commits, when it pauses, what it counts."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gateway.feedback import Feedback
from gateway.keys import KeyReader
from gateway.loop import Loop
from gateway.settings import Settings
from gateway.transport import Flight, Group, Keys, Outcome, TopicPartition
from protocol.messages import BudgetMessage

RAW = TopicPartition("raw", 0)
NOW = 1_000_000.0


class FakeGroup:
    by_broker = True

    def __init__(self, first: int, count: int) -> None:
        self.source = RAW
        self.offsets = np.arange(first, first + count)
        self.timestamps_ms = np.full(count, int(NOW * 1000))

    def __len__(self) -> int:
        return len(self.offsets)

    def keys(self, reader: KeyReader) -> Keys:
        return Keys(missing=0, unreadable={})


class FakeSource:
    def __init__(self) -> None:
        self.waiting: list[Group] = []
        self.committed: dict[TopicPartition, int] = {}
        self.paused = False

    def poll(self, limit: int, wait: float) -> Sequence[Group]:
        taken, self.waiting = self.waiting, []
        return [] if self.paused else taken

    def commit(self, positions: Mapping[TopicPartition, int], *, wait: bool) -> None:
        self.committed |= positions

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        pass


class FakeSink:
    """Delivers when told."""

    def __init__(self) -> None:
        self.flights: list[Flight] = []
        self.in_flight_records = 0
        self.in_flight_bytes = 0

    def send(self, group: Group, outcome: Outcome, flight: Flight) -> None:
        flight.pending = int((outcome.codes == -1).sum())
        self.in_flight_records += flight.pending
        self.flights.append(flight)

    def deliver(self, flight: Flight) -> None:
        self.in_flight_records -= flight.pending
        flight.pending = 0

    def serve(self, wait: float) -> None:
        pass

    def flush(self, wait: float) -> int:
        return self.in_flight_records


@pytest.fixture
def parts() -> tuple[Loop, FakeSource, FakeSink]:
    settings = Settings(
        topics=({"raw": "raw", "processing": "out"},),  # type: ignore[arg-type]
        controller={"initial_records": 1_000},  # type: ignore[arg-type]
        loop={"in_flight_records": 50},  # type: ignore[arg-type]
    )
    loop = Loop(
        settings,
        feedback=Feedback({"out"}),
        clock=lambda: NOW,
        draws=np.zeros,
        backlog_of=lambda _: (0, 0),
        raw_partitions=1,
    )
    source, sink = FakeSource(), FakeSink()
    loop.connect(source, sink)
    loop.assigned([RAW])
    return loop, source, sink


def test_nothing_is_committed_before_it_is_delivered(parts: tuple[Loop, FakeSource, FakeSink]) -> None:
    loop, source, sink = parts
    source.waiting = [FakeGroup(0, 10)]
    loop.turn()
    loop.commit()
    assert source.committed == {}
    sink.deliver(sink.flights[0])
    loop.turn()
    loop.commit()
    assert source.committed == {RAW: 10}


def test_a_later_delivery_does_not_commit_past_an_earlier_one(parts: tuple[Loop, FakeSource, FakeSink]) -> None:
    loop, source, sink = parts
    source.waiting = [FakeGroup(0, 10)]
    loop.turn()
    source.waiting = [FakeGroup(10, 10)]
    loop.turn()
    sink.deliver(sink.flights[1])
    loop.turn()
    loop.commit()
    assert source.committed == {}
    sink.deliver(sink.flights[0])
    loop.turn()
    loop.commit()
    assert source.committed == {RAW: 20}


def test_a_slow_processing_topic_pauses_polling_until_half_of_it_is_delivered(
    parts: tuple[Loop, FakeSource, FakeSink],
) -> None:
    loop, source, sink = parts
    source.waiting = [FakeGroup(0, 60)]
    loop.turn()
    loop.turn()
    assert source.paused
    sink.deliver(sink.flights[0])
    loop.turn()
    assert not source.paused


def test_records_of_a_partition_that_went_away_are_left_to_its_new_owner(
    parts: tuple[Loop, FakeSource, FakeSink],
) -> None:
    loop, source, sink = parts
    loop.lost([RAW])
    source.waiting = [FakeGroup(0, 10)]
    assert loop.turn() == 0
    assert sink.flights == []


def test_every_record_is_booked_under_one_outcome(parts: tuple[Loop, FakeSource, FakeSink]) -> None:
    loop, source, _ = parts
    source.waiting = [FakeGroup(0, 3_000)]
    loop.turn()
    account = loop.accounts[RAW]
    assert account.balanced
    assert account.arrived == 3_000
    assert 0 < account.admitted < 3_000
    assert account.shed["cold_start"] == 3_000 - account.admitted


def budget(epoch: int, sequence: int, reason: str = "too_slow") -> BudgetMessage:
    return BudgetMessage(
        epoch=epoch,
        sequence=sequence,
        topic="raw",
        partition=0,
        rate=0.0,
        offered=1.0,
        limit_s=0.0,
        deadline_s=None,
        cost_s=0.01,
        period_s=0.5,
        reason=reason,
        at_s=NOW,
    )


def test_budgets_of_an_older_leader_or_an_unknown_kind_are_refused(parts: tuple[Loop, FakeSource, FakeSink]) -> None:
    loop, _, _ = parts
    loop.take_budget(budget(5, 1))
    loop.take_budget(budget(4, 9))
    loop.take_budget(budget(5, 0))
    loop.take_budget(budget(6, 1, reason="a reason of tomorrow"))
    assert loop.refused_budgets == 3


def test_reports_tell_what_was_done_with_the_partition(parts: tuple[Loop, FakeSource, FakeSink]) -> None:
    loop, source, _ = parts
    source.waiting = [FakeGroup(0, 10)]
    loop.turn()
    (report,) = loop.reports()
    assert (report.arrived, report.admitted, report.outstanding, report.delivered) == (10, 10, 10, -1)
