"""CTRL: its gains, its equation and its regimes."""

import pytest

from controller.budget import Reason
from controller.ctrl import CtrlState, Gains, gains, step
from controller.observation import Observation

PUBLISHED = gains(0.7, 0.7, -0.8)


def seen(**changes: float) -> Observation:
    values = {
        "period": 1.0,
        "arrived": 200,
        "admitted": 190,
        "finished": 190,
        "outstanding": 370,
        "cost": 0.0051,
        "headroom": 0.97,
        "set_point": 2.0,
    } | changes
    return Observation(**values)  # type: ignore[arg-type]


def test_two_poles_at_seven_tenths_give_the_published_gains() -> None:
    found = gains(0.7, 0.7, -0.8)
    assert (found.b0, found.b1, found.a) == pytest.approx((0.4, -0.31, -0.8))


@pytest.mark.parametrize(("p1", "p2", "a"), [(0.5, 0.5, -0.8), (0.9, 0.2, 0.1), (0.0, 0.0, -0.5)])
def test_gains_put_the_closed_loop_poles_where_they_were_asked_for(p1: float, p2: float, a: float) -> None:
    """Plant 1/(z−1) and controller (b0·z + b1)/(z + a): the denominator must be (z − p1)(z − p2)."""
    found = gains(p1, p2, a)
    assert (a - 1 + found.b0, found.b1 - a) == pytest.approx((-(p1 + p2), p1 * p2))


def test_poles_outside_the_unit_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="unit circle"):
        gains(1.0, 0.5, -0.8)


def test_the_step_is_the_papers_equation() -> None:
    state, budget = step(CtrlState(error=0.1), seen(outstanding=370), PUBLISHED)
    estimate = 371 * 0.0051 / 0.97
    error = 2.0 - estimate
    growth = 0.0  # admitted as much as finished
    wanted = 0.97 / 0.0051 * (0.4 * error - 0.31 * 0.1) + 0.8 * growth
    assert state.error == pytest.approx(error)
    assert budget.rate == pytest.approx((wanted + 190) * 0.0051)


def test_a_queue_at_the_set_point_is_kept_where_it_is() -> None:
    at_set_point = round(2.0 * 0.97 / 0.0051) - 1
    _, budget = step(CtrlState(error=0.0), seen(outstanding=at_set_point), PUBLISHED)
    assert budget.rate / 0.0051 == pytest.approx(190, rel=0.01)
    assert budget.reason is Reason.TOO_SLOW


def test_a_short_queue_admits_all_that_arrives() -> None:
    _, budget = step(CtrlState(error=1.9), seen(outstanding=5, arrived=190), PUBLISHED)
    assert budget.keep == 1.0
    assert budget.reason is Reason.ON_TARGET


def test_the_admitted_rate_is_never_negative() -> None:
    _, budget = step(CtrlState(error=0.0), seen(outstanding=5_000, finished=10), PUBLISHED)
    assert budget.rate == 0.0


def test_a_quiet_hour_earns_no_credit_for_a_flood() -> None:
    """The remembered growth is what happened, so the budget after an idle period is bounded by the error alone."""
    idle = seen(arrived=0, admitted=0, finished=0, outstanding=0)
    state = CtrlState()
    for _ in range(3_600):
        state, budget = step(state, idle, PUBLISHED)
    bound = 0.97 * (PUBLISHED.b0 + PUBLISHED.b1) * 2.0
    assert budget.rate <= bound + 1e-9


def test_equal_arguments_give_equal_answers() -> None:
    assert step(CtrlState(error=0.2), seen(), PUBLISHED) == step(CtrlState(error=0.2), seen(), PUBLISHED)


def test_a_new_set_point_counts_from_the_next_period_on() -> None:
    gains_ = Gains(b0=0.4, b1=-0.31, a=-0.8)
    low, _ = step(CtrlState(), seen(set_point=1.0), gains_)
    high, _ = step(CtrlState(), seen(set_point=3.0), gains_)
    assert low.error is not None
    assert high.error is not None
    assert high.error - low.error == pytest.approx(2.0)
