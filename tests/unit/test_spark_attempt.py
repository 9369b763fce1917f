"""What an attempt adds up, per topic-partition."""

import pytest

from protocol.encoding import decode, encode
from protocol.histogram import bucket
from spark_job.attempt import Attempt, Identity

WHO = Identity(query="q", run="r", batch=3, task=7, attempt=1, slots=4)


def attempt() -> Attempt:
    made = Attempt(WHO)
    made.receive("t", 0, first=10, records=5, now_s=100.0)
    return made


def test_only_the_first_records_of_a_partition_start_it() -> None:
    made = Attempt(WHO)
    assert made.receive("t", 0, first=10, records=5, now_s=100.0)
    assert not made.receive("t", 0, first=15, records=2, now_s=101.0)
    assert made.receive("t", 1, first=0, records=1, now_s=102.0)
    started = made.started("t", 0)
    assert (started.first, started.received, started.started_s) == (10, 7, 100.0)


def test_progress_is_cumulative_within_the_attempt() -> None:
    made = attempt()
    made.finish("t", 0, next_offset=12, busy_s=0.5, arrivals_s=[99.0, 99.5], left_s=101.0)
    made.finish("t", 0, next_offset=15, busy_s=0.25, arrivals_s=[99.5], left_s=102.0)
    (said,) = made.progress(now_s=103.0)
    assert (said.first, said.next, said.count, said.received) == (10, 15, 3, 5)
    assert said.busy_s == pytest.approx(0.75)
    assert said.response_sum_s == pytest.approx(2.0 + 1.5 + 2.5)
    assert said.response_max_s == pytest.approx(2.5)
    assert said.responses == {str(bucket(2.0)): 1, str(bucket(1.5)): 1, str(bucket(2.5)): 1}
    assert (said.batch, said.task, said.attempt, said.slots) == (3, 7, 1, 4)


def test_partitions_of_one_task_are_told_apart() -> None:
    made = attempt()
    made.receive("t", 1, first=0, records=1, now_s=100.0)
    made.receive("u", 0, first=5, records=1, now_s=100.0)
    made.finish("u", 0, next_offset=6, busy_s=0.1, arrivals_s=[100.0], left_s=100.1)
    said = {(one.topic, one.partition): one.count for one in made.progress(now_s=101.0)}
    assert said == {("t", 0): 0, ("t", 1): 0, ("u", 0): 1}


def test_what_has_not_changed_is_not_said_again_except_at_the_end() -> None:
    made = attempt()
    assert len(made.progress(now_s=101.0)) == 1
    assert made.progress(now_s=101.1) == []
    assert [one.done for one in made.progress(now_s=101.2, done=True)] == [True]


def test_a_result_before_its_arrival_took_no_time() -> None:
    made = attempt()
    made.finish("t", 0, next_offset=11, busy_s=0.1, arrivals_s=[3700.0], left_s=100.0)
    (said,) = made.progress(now_s=101.0)
    assert (said.response_sum_s, said.response_max_s, said.responses) == (0.0, 0.0, {"0": 1})


def test_wasted_work_is_busy_but_never_finished() -> None:
    made = attempt()
    made.waste("t", 0, 0.5)
    (said,) = made.progress(now_s=101.0)
    assert (said.busy_s, said.count, said.next) == (0.5, 0, 10)


def test_the_messages_survive_the_wire() -> None:
    made = attempt()
    made.finish("t", 0, next_offset=12, busy_s=0.5, arrivals_s=[99.0, 99.5], left_s=101.0)
    for message in (made.started("t", 0), *made.progress(now_s=102.0, done=True)):
        assert decode(encode(message)) == message
