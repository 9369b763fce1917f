"""The gate: coin, bucket, guard and trickle, swept rather than diced."""

import numpy as np
import pytest

from controller.batch import SHED_REASONS, Batch
from controller.budget import UNLIMITED, Budget, Reason
from controller.gate import Actuator, Gate

NO_DRAWS = np.zeros(0)


def batch(at: np.ndarray, outstanding: float = 0.0) -> Batch:
    return Batch(at=at, outstanding=outstanding)


def admitted_of(gate: Gate, budget: Budget, at: np.ndarray, outstanding: float = 0.0) -> np.ndarray:
    return gate.pass_batch(batch(at, outstanding), budget, np.zeros(len(at))).admitted


@pytest.mark.parametrize("keep", [0.0, 0.25, 0.8, 1.0])
def test_the_coin_keeps_exactly_its_share_over_an_even_sweep(keep: float) -> None:
    gate = Gate(Actuator.COIN, trickle_per_second=0.0)
    gate._trickle = 0.0
    budget = Budget(rate=keep * 10, offered=10.0, cost=0.01, reason=Reason.TOO_SLOW)
    draws = np.arange(10_000) / 10_000
    verdicts = gate.pass_batch(batch(np.zeros(10_000)), budget, draws)
    assert verdicts.admitted.sum() == keep * 10_000


def test_a_bucket_spends_its_rate_and_no_more() -> None:
    gate = Gate(Actuator.EXACT, trickle_per_second=0.0)
    budget = Budget(rate=1.0, offered=2.0, cost=0.01, period=0.5, reason=Reason.TOO_SLOW)
    at = np.arange(0, 100, 0.005)  # 200 a second, each 10 ms of work: twice the rate
    kept = admitted_of(gate, budget, at).sum()
    assert kept == pytest.approx(100 * 1.0 / 0.01, abs=50)


def test_a_bucket_holds_half_a_period_and_no_idle_credit() -> None:
    gate = Gate(Actuator.EXACT, trickle_per_second=0.0)
    budget = Budget(rate=1.0, offered=2.0, cost=0.01, period=0.5, reason=Reason.TOO_SLOW)
    admitted_of(gate, budget, np.zeros(1))
    burst = admitted_of(gate, budget, np.full(1_000, 3_600.0))
    assert burst.sum() == 25  # 1.0 · 0.5 s / 2 / 10 ms


def test_the_decision_does_not_depend_on_how_records_are_polled() -> None:
    budget = Budget(rate=0.7, offered=2.0, cost=0.01, period=0.5, limit=5.0, reason=Reason.TOO_SLOW)
    at = np.sort(np.random.default_rng(5).random(2_000) * 10)
    whole = admitted_of(Gate(Actuator.EXACT, trickle_per_second=1.0), budget, at)
    gate = Gate(Actuator.EXACT, trickle_per_second=1.0)
    pieces = np.concatenate([admitted_of(gate, budget, part) for part in np.array_split(at, 37)])
    assert (whole == pieces).all()


def test_the_guard_never_lets_outstanding_work_exceed_its_limit() -> None:
    gate = Gate(Actuator.GUARDED, trickle_per_second=0.0)
    gate._trickle = 0.0
    budget = Budget(rate=UNLIMITED, offered=9.0, cost=0.01, limit=1.0, reason=Reason.ON_TARGET)
    verdicts = gate.pass_batch(batch(np.zeros(500), outstanding=0.6), budget, np.zeros(500))
    assert verdicts.admitted.sum() == pytest.approx(40, abs=1)
    assert {SHED_REASONS[code] for code in verdicts.codes if code >= 0} == {Reason.BACKLOG_FULL}


def test_without_a_limit_on_rate_or_backlog_everything_passes() -> None:
    gate = Gate(Actuator.GUARDED, trickle_per_second=1.0)
    assert admitted_of(gate, Budget(reason=Reason.PASS_THROUGH), np.zeros(1_000)).all()


@pytest.mark.parametrize("actuator", list(Actuator))
def test_a_trickle_passes_however_tight_the_budget(actuator: Actuator) -> None:
    gate = Gate(actuator, trickle_per_second=1.0)
    budget = Budget(rate=0.0, offered=1.0, limit=0.0, cost=1.0, reason=Reason.NO_FEEDBACK)
    draws = np.ones(1_000)
    verdicts = gate.pass_batch(batch(np.linspace(0, 10, 1_000)), budget, draws)
    assert 10 <= verdicts.admitted.sum() <= 11


@pytest.mark.parametrize("actuator", list(Actuator))
def test_a_cold_start_is_bounded_under_every_actuator(actuator: Actuator) -> None:
    gate = Gate(actuator, trickle_per_second=0.0)
    budget = Budget(limit=50.0, cost=1.0, reason=Reason.COLD_START)
    verdicts = gate.pass_batch(batch(np.zeros(1_000)), budget, np.zeros(1_000))
    assert verdicts.admitted.sum() <= 51
    assert {SHED_REASONS[code] for code in verdicts.codes if code >= 0} == {Reason.COLD_START}


def test_time_that_runs_backwards_fills_nothing() -> None:
    gate = Gate(Actuator.EXACT, trickle_per_second=0.0)
    budget = Budget(rate=1.0, offered=2.0, cost=0.01, period=0.5, reason=Reason.TOO_SLOW)
    admitted_of(gate, budget, np.array([100.0, 100.0]))
    assert admitted_of(gate, budget, np.full(100, 100.0)).sum() == 0
    assert admitted_of(gate, budget, np.full(100, 50.0)).sum() == 0


def test_an_empty_batch_has_no_verdicts() -> None:
    assert len(Gate(Actuator.EXACT, trickle_per_second=0.0).pass_batch(batch(NO_DRAWS), Budget(), NO_DRAWS).codes) == 0
