"""The gateway's decisions on a micro-batch engine in virtual time: the plant that Spark is."""

import numpy as np
import pytest

from controller.ctrl import Ctrl, gains
from controller.gate import Actuator
from controller.governor import Degrade, GovernorSettings
from simulator.micro_batch import MicroBatchEngine
from simulator.pipeline import Run, simulate

TARGET = 2.0
COST = 0.01
CALM, SURGE = (15.0, 45.0)  # the surge's begin and end; calm before and after


def settings(*, guarded: bool = True) -> GovernorSettings:
    return GovernorSettings(
        set_point=0.85 * TARGET,
        period=0.5,
        headroom=None,
        initial_records=500,
        hold=10.0,
        degrade=Degrade.CLOSED,
        guarded=guarded,
    )


def load(capacity: float, *, hot: bool, seed: int) -> list[tuple[float, int, float]]:
    """Half of capacity, twice capacity, half again; Poisson, over four partitions or all on one."""
    dice = np.random.default_rng(seed)
    arrivals: list[tuple[float, int, float]] = []
    for begin, end, factor in ((0.0, CALM, 0.5), (CALM, SURGE, 2.0), (SURGE, 60.0, 0.5)):
        times = np.sort(dice.random(dice.poisson((end - begin) * capacity * factor))) * (end - begin) + begin
        arrivals += [(float(t), 0 if hot else int(dice.integers(4)), COST) for t in times]
    return arrivals


def run(*, overhead: float, hot: bool = False, seed: int = 1, law: Ctrl | None = None) -> Run:
    dice = np.random.default_rng(seed + 100)
    engine = MicroBatchEngine(slots=4, partitions=4, overhead=lambda: float(overhead * (0.8 + 0.4 * dice.random())))
    law = law or Ctrl(gains(0.7, 0.7, -0.8))
    return simulate(load(100 if hot else 400, hot=hot, seed=seed), engine, settings(), law, seed=seed)


def losses(result: Run, arrivals: list[tuple[float, int, float]], begin: float, end: float) -> float:
    offered = sum(begin <= t < end for t, _, _ in arrivals)
    kept = sum(begin <= r.arrived < end for r in result.results)
    return 1 - kept / offered


@pytest.mark.parametrize("hot", [False, True], ids=["even", "one hot partition"])
@pytest.mark.parametrize("overhead", [0.2, 0.4])
@pytest.mark.parametrize("seed", [1, 2])
def test_ctrl_holds_the_target_through_a_surge(overhead: float, hot: bool, seed: int) -> None:
    result = run(overhead=overhead, hot=hot, seed=seed)
    means = [mean for second, mean in result.means_by_second().items() if CALM + 2 <= second < SURGE]
    assert sum(mean <= TARGET for mean in means) >= 0.95 * len(means)


@pytest.mark.parametrize("hot", [False, True], ids=["even", "one hot partition"])
@pytest.mark.parametrize("overhead", [0.2, 0.4])
def test_ctrl_loses_little_more_than_it_must(overhead: float, hot: bool) -> None:
    result = run(overhead=overhead, hot=hot)
    arrivals = load(100 if hot else 400, hot=hot, seed=1)
    least = 1 - (1 - overhead / (TARGET - overhead / 2)) / 2
    assert losses(result, arrivals, CALM, SURGE) <= least + 0.10


def test_nothing_is_shed_while_all_of_it_fits() -> None:
    result = run(overhead=0.4)
    assert losses(result, load(400, hot=False, seed=1), 0.0, CALM) == 0.0


def test_without_a_load_manager_everything_is_admitted_and_waits() -> None:
    arrivals = load(400, hot=False, seed=1)
    engine = MicroBatchEngine(slots=4, partitions=4, overhead=lambda: 0.4)
    result = simulate(arrivals, engine, settings(guarded=False), None, actuator=Actuator.COIN)
    assert result.admitted > 0.95 * result.offered  # only a cold start of half a second is bounded
    assert max(result.means_by_second().values()) > 3 * TARGET


def test_every_admitted_tuple_has_a_result() -> None:
    result = run(overhead=0.4)
    assert len(result.results) == result.admitted
