"""CTRL: regulate the delay by pole placement (Tu, Liu, Prabhakar, Yao, VLDB 2006).

The engine is an integrator, ``y(k) = (c/H)·(q(k−1) + 1)``. The delay of a tuple that enters now cannot
be measured yet, so the feedback signal is the estimate ``ŷ = (q + 1)·c/H``. With ``e = set point − ŷ``:

    u(k) = H/(c·T) · [b0·e(k) + b1·e(k−1)] − a·u(k−1)      growth of the queue, tuples per second
    v(k) = u(k) + f_out(k)                                 admitted rate

Regimes: below the set point ``v`` exceeds what arrives and nothing is shed; at it, the queue is kept where
it is; above it the queue is let run down. Needs: the queue length, the cost per tuple, the headroom.
"""

from dataclasses import dataclass

from controller.budget import Budget, Reason
from controller.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    b0: float
    b1: float
    a: float


def gains(p1: float, p2: float, a: float) -> Gains:
    """The gains that put the closed loop's poles at p1 and p2; ``a`` is free.

    Comparing coefficients: a + b0 = 1 − (p1 + p2) and b1 − a = p1·p2. The unit-gain condition then holds
    by itself. Two poles at 0.7 (63 % of a step in three periods, no overshoot) and a = −0.8 give the
    published triple 0.4, −0.31, −0.8.
    """
    if not (abs(p1) < 1 and abs(p2) < 1):
        raise ValueError(f"poles {p1} and {p2} must lie inside the unit circle")
    return Gains(b0=1 - (p1 + p2) - a, b1=p1 * p2 + a, a=a)


@dataclass(frozen=True, slots=True, kw_only=True)
class CtrlState:
    error: float | None = None  # e(k−1); None before the first period


def step(state: CtrlState, seen: Observation, with_gains: Gains) -> tuple[CtrlState, Budget]:
    """The next state and budget; equal arguments give equal answers."""
    estimate = (seen.outstanding + 1) * seen.cost / seen.headroom
    error = seen.set_point - estimate
    before = error if state.error is None else state.error

    # u(k−1) is the growth that really happened: what was not offered was not admitted, and remembering
    # the permission instead would let a quiet hour pay for a flood.
    f_out, f_in = seen.completion_rate, seen.arrival_rate
    growth = min(max(seen.admission_rate - f_out, -f_out), f_in + f_out + 10)

    per_second = seen.headroom / (seen.cost * seen.period)
    wanted = per_second * (with_gains.b0 * error + with_gains.b1 * before) - with_gains.a * growth
    admitted_rate = max(0.0, wanted + f_out)
    return CtrlState(error=error), Budget(
        rate=admitted_rate * seen.cost,
        offered=f_in * seen.cost,
        cost=seen.cost,
        period=seen.period,
        reason=Reason.ON_TARGET if admitted_rate >= f_in else Reason.TOO_SLOW,
    )


class Ctrl:
    """CTRL as a load manager: keeps the state between periods."""

    def __init__(self, with_gains: Gains) -> None:
        self._gains = with_gains
        self._state = CtrlState()

    def step(self, seen: Observation) -> Budget:
        self._state, budget = step(self._state, seen, self._gains)
        return budget
