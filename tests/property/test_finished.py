"""Finished offsets against an exact set of offsets, under retries, copies, splits and replays."""

from hypothesis import given
from hypothesis import strategies as st

from controller.backlog import Backlog
from controller.finished import Finished

# An attempt of a task: where it begins, how far it gets (in steps), over a partition of 40 offsets.
attempts = st.lists(
    st.tuples(st.integers(0, 39), st.lists(st.integers(1, 8), max_size=6)),
    max_size=12,
)


@given(attempts)
def test_every_offset_counts_once_however_often_it_is_worked_on(plan: list[tuple[int, list[int]]]) -> None:
    finished, truth, total, worked = Finished(), set(), 0, 0
    for task, (first, steps) in enumerate(plan):
        position = first
        for step in steps:
            start, position = position, position + step
            news = finished.report(
                run="r", batch=0, task=task, first=first, next=position, count=position - first, busy=0.0
            )
            truth |= set(range(start, position))
            total += news.finished
            worked += news.worked
    assert total == len(truth)
    assert worked == sum(sum(steps) for _, steps in plan)
    for low in range(0, 90, 7):
        assert finished.covered(low, low + 11) == len(truth & set(range(low, low + 11)))


@given(attempts, st.integers(0, 11))
def test_a_repeated_or_late_report_changes_nothing(plan: list[tuple[int, list[int]]], which: int) -> None:
    finished = Finished()
    reports = []
    for task, (first, steps) in enumerate(plan):
        position = first
        for step in steps:
            position += step
            reports.append({"task": task, "first": first, "next": position, "count": position - first})
    for report in reports:
        finished.report(run="r", batch=0, busy=0.0, **report)
    if reports:
        again = reports[which % len(reports)]
        assert finished.report(run="r", batch=0, busy=0.0, **again).finished == 0


def test_a_newer_batch_completes_everything_reported_before_it() -> None:
    finished = Finished()
    finished.report(run="r", batch=1, task=1, first=0, next=10, count=10, busy=0.1)
    finished.report(run="r", batch=1, task=2, first=12, next=20, count=8, busy=0.1)  # 10 and 11 are markers
    finished.report(run="r", batch=2, task=3, first=21, next=22, count=1, busy=0.1)
    assert finished.covered(0, 20) == 20


def test_a_restart_that_replays_old_batches_finishes_nothing_twice() -> None:
    finished = Finished()
    assert finished.report(run="a", batch=5, task=9, first=0, next=30, count=30, busy=0.3).finished == 30
    replay = finished.report(run="b", batch=4, task=0, first=10, next=25, count=15, busy=0.2)
    assert (replay.finished, replay.worked, replay.busy) == (0, 15, 0.2)
    assert finished.report(run="b", batch=4, task=0, first=10, next=40, count=30, busy=0.4).finished == 10


@given(st.lists(st.integers(1, 9), max_size=10), st.integers(0, 60))
def test_the_backlog_is_what_was_admitted_less_what_is_finished(chunks: list[int], done: int) -> None:
    backlog, finished, offset = Backlog(), Finished(), 0
    for count in chunks:
        chunk = backlog.admit(count)
        for _ in range(count):
            chunk.delivered(offset)
            offset += 1
    done = min(done, offset)
    finished.report(run="r", batch=0, task=0, first=0, next=done, count=done, busy=0.0)
    backlog.cut(finished)
    assert backlog.outstanding == offset - done


def test_an_inherited_backlog_counts_until_it_is_reported_finished() -> None:
    backlog, finished = Backlog(), Finished()
    backlog.inherit(first=100, end=150)
    assert backlog.outstanding == 50
    finished.report(run="r", batch=3, task=0, first=90, next=130, count=40, busy=0.0)
    backlog.cut(finished)
    assert backlog.outstanding == 20


def test_records_not_yet_delivered_count_as_outstanding() -> None:
    backlog, finished = Backlog(), Finished()
    backlog.admit(7)
    finished.report(run="r", batch=0, task=0, first=0, next=100, count=100, busy=0.0)
    backlog.cut(finished)
    assert backlog.outstanding == 7
