"""Mean cost, headroom and batch overhead: what a law is told but does not measure."""

import pytest

from controller.batch_model import BatchModel, slot_share
from controller.cost import MeanCost
from controller.headroom import Headroom


def test_the_mean_cost_follows_a_jump_within_seconds() -> None:
    cost = MeanCost()
    for _ in range(20):
        cost.observe(busy=1.0, count=100, elapsed=0.5)
    assert cost.value == pytest.approx(0.01)
    for _ in range(12):
        cost.observe(busy=3.0, count=100, elapsed=0.5)
    assert cost.value == pytest.approx(0.03, rel=0.1)


def test_an_idle_engine_leaves_the_mean_cost_alone() -> None:
    cost = MeanCost()
    cost.observe(busy=1.0, count=100, elapsed=0.5)
    for _ in range(1_000):
        cost.observe(busy=0.0, count=0, elapsed=0.5)
    assert cost.value == pytest.approx(0.01)


def test_before_the_first_tuple_there_is_no_cost() -> None:
    assert MeanCost().value is None


def test_headroom_starts_at_four_fifths_of_the_slots_and_learns_the_rest() -> None:
    headroom = Headroom()
    headroom.engine(4)
    assert headroom.value == pytest.approx(3.2)
    for _ in range(60):
        headroom.observe(busy=1.25, period=0.5)
    assert headroom.value == pytest.approx(2.5, rel=0.05)


def test_another_engine_starts_learning_anew() -> None:
    headroom = Headroom()
    headroom.engine(4)
    for _ in range(60):
        headroom.observe(busy=1.25, period=0.5)
    headroom.engine(8)
    assert headroom.value == pytest.approx(6.4)


def test_a_stalled_engine_keeps_a_little_headroom() -> None:
    headroom = Headroom()
    headroom.engine(4)
    for _ in range(1_000):
        headroom.observe(busy=0.0, period=0.5)
    assert headroom.value > 0


def test_overhead_is_the_distance_of_two_starts_less_the_busiest_task() -> None:
    model = BatchModel()
    at = 100.0
    for batch in range(6):
        model.started(run="r", batch=batch, at=at + 0.05)
        model.started(run="r", batch=batch, at=at)
        model.worked(run="r", batch=batch, task=1, busy=0.8)
        model.worked(run="r", batch=batch, task=2, busy=1.0)
        at += 1.35
    assert model.overhead == pytest.approx(0.35)
    assert model.parallelism == pytest.approx(1.8)


def test_batches_that_do_not_follow_each_other_are_not_compared() -> None:
    model = BatchModel()
    for batch in (0, 5, 10, 15, 20):
        model.started(run="r", batch=batch, at=float(batch))
        model.worked(run="r", batch=batch, task=1, busy=0.1)
    assert model.overhead is None


def test_a_slots_share_of_work_is_what_the_overhead_leaves_at_that_response_time() -> None:
    # o = 0.4 and L = 1.5 give a mean response of 1.7 and leave 1 − 0.4/1.5 for work.
    assert slot_share(0.4, 1.7) == pytest.approx(1 - 0.4 / 1.5)
    assert slot_share(None, 1.7) == 0.8
    assert slot_share(5.0, 1.7) == 0.05
