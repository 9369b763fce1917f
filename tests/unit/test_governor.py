"""The governor: cold start, silence, and handing the law what it needs."""

import dataclasses

import pytest

from controller.budget import UNLIMITED, Budget, Reason
from controller.ctrl import Ctrl, gains
from controller.governor import Degrade, EnginePeriod, Governor, GovernorSettings, PartitionPeriod

BUSY = PartitionPeriod(arrived=100, admitted=50, shed=50, outstanding=200)


def governor(degrade: Degrade = Degrade.CLOSED, *, law: bool = True) -> Governor[int]:
    settings = GovernorSettings(
        set_point=1.7,
        period=0.5,
        headroom=None,
        initial_records=100,
        hold=5.0,
        degrade=degrade,
        guarded=True,
    )
    return Governor(settings, Ctrl(gains(0.7, 0.7, -0.8)) if law else None)


def engine(*, heard: bool = True, worked: int = 100) -> EnginePeriod:
    done = worked if heard else 0
    return EnginePeriod(
        heard=heard,
        finished=done,
        worked=done,
        busy=done * 0.01,
        response=1.0 if done else None,
        slots=4,
        overhead=0.3,
        parallelism=3.8,
    )


def steps(g: Governor[int], begin: float, end: float, seen: PartitionPeriod, e: EnginePeriod) -> Budget:
    at = begin
    while at <= end:
        budget = g.step(at, {0: seen}, e)[0]
        at += 0.5
    return budget


def test_before_the_first_feedback_only_the_initial_records_may_be_outstanding() -> None:
    budget = governor().step(0.0, {0: BUSY}, engine(heard=False))[0]
    assert budget.reason is Reason.COLD_START
    assert budget.limit == pytest.approx(100)
    assert budget.cost == 1.0


def test_the_law_speaks_from_the_first_feedback_on() -> None:
    g = governor()
    g.step(0.0, {0: BUSY}, engine(heard=False))
    assert g.step(0.5, {0: BUSY}, engine())[0].reason in (Reason.TOO_SLOW, Reason.ON_TARGET)


def test_silence_is_borne_for_a_while_and_then_degrades() -> None:
    g = governor()
    steps(g, 0.0, 2.0, BUSY, engine())
    assert steps(g, 2.5, 6.0, BUSY, engine(heard=False)).reason is not Reason.NO_FEEDBACK
    assert steps(g, 6.5, 8.0, BUSY, engine(heard=False)).reason is Reason.NO_FEEDBACK


def test_an_idle_pipeline_owes_no_feedback() -> None:
    g = governor()
    steps(g, 0.0, 2.0, BUSY, engine())
    idle = PartitionPeriod(arrived=0, admitted=0, shed=0, outstanding=0)
    assert steps(g, 2.5, 100.0, idle, engine(heard=False)).reason is not Reason.NO_FEEDBACK


@pytest.mark.parametrize(
    ("degrade", "rate"),
    [(Degrade.OPEN, UNLIMITED), (Degrade.CLOSED, 0.0), (Degrade.AURORA, pytest.approx(3.2, rel=0.5))],
)
def test_after_silence_the_budget_is_as_configured(degrade: Degrade, rate: float) -> None:
    g = governor(degrade)
    steps(g, 0.0, 2.0, BUSY, engine())
    assert steps(g, 2.5, 9.0, BUSY, engine(heard=False)).rate == rate


def test_feedback_that_returns_ends_the_degradation() -> None:
    g = governor()
    steps(g, 0.0, 2.0, BUSY, engine())
    steps(g, 2.5, 9.0, BUSY, engine(heard=False))
    assert g.step(9.5, {0: BUSY}, engine())[0].reason is not Reason.NO_FEEDBACK


def test_without_a_law_everything_passes() -> None:
    budget = governor(law=False).step(0.0, {0: BUSY}, engine())[0]
    assert (budget.rate, budget.limit, budget.reason) == (UNLIMITED, UNLIMITED, Reason.PASS_THROUGH)


def test_what_fits_is_not_rationed_but_a_surge_finds_a_bound() -> None:
    g = governor()
    short = PartitionPeriod(arrived=20, admitted=20, shed=0, outstanding=20)
    budget = steps(g, 0.0, 3.0, short, engine(worked=20))
    assert budget.reason is Reason.ON_TARGET
    assert 2 * budget.offered < budget.rate < 4 * 1.3
    assert budget.limit < UNLIMITED


def test_responses_above_the_set_point_lower_the_headroom_that_is_believed() -> None:
    slow, fast = governor(), governor()
    late = dataclasses.replace(engine(), response=3.0)
    steps(fast, 0.0, 5.0, BUSY, engine())
    steps(slow, 0.0, 5.0, BUSY, late)
    assert fast.seen is not None
    assert slow.seen is not None
    assert slow.seen.headroom < 0.7 * fast.seen.headroom
