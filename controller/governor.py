"""Once per control period: what every partition and the engine did goes in, a budget per partition comes out.

Holds what a law needs and does not measure itself (mean cost, headroom), and speaks for the law while there
is nothing to regulate by: before the first feedback, and when feedback has been missing for too long.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from controller.batch_model import slot_share
from controller.budget import UNLIMITED, Budget, Reason
from controller.cost import MeanCost
from controller.headroom import Headroom
from controller.observation import Observation
from controller.seams import LoadManager
from controller.share import split

Key = TypeVar("Key", bound=Hashable)

_SATURATED = 0.75  # of the set point: a backlog above it means that the engine works as fast as it can
# The model says what the engine could do at the set point; what it did lately bounds how far that is believed.
_BELIEVED = 1.25
# While all fits, inflow may exceed what the engine can do by so much, in bursts of up to a second: a surge that
# begins must not fill the whole backlog at once, or its first records wait for two batches.
_BURST = 1.3
_SLOWEST_TRIM = 0.6  # responses above the set point lower the headroom, by no more than this
_NEWEST = 0.2  # weight of the newest period in a partition's offered load: shares must not follow every swing


class Degrade(StrEnum):
    """What to do when feedback has been missing for too long."""

    OPEN = "open"  # admit everything
    CLOSED = "closed"  # admit the trickle only
    AURORA = "aurora"  # open loop: the headroom last measured


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorSettings:
    set_point: float  # seconds
    period: float
    headroom: float | None  # None: measured
    initial_records: int
    hold: float  # seconds without feedback before degrading
    degrade: Degrade
    guarded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPeriod:
    """One raw partition in one control period."""

    arrived: int
    admitted: int
    shed: int
    outstanding: int  # when the period ended


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePeriod:
    """The engine in one control period, from its feedback."""

    heard: bool  # whether it reported at all
    finished: int
    worked: int  # repeated work included
    busy: float
    response: float | None  # mean response time of what was finished; None without any
    slots: int
    overhead: float | None  # of a batch, seconds; None while unknown
    parallelism: float | None  # slots that batches keep busy; None while unknown


class Governor(Generic[Key]):
    """Time comes in as an argument (seconds of any clock that only goes forward)."""

    def __init__(self, settings: GovernorSettings, law: LoadManager | None) -> None:
        self._settings = settings
        self._law = law  # None: pass everything through
        self._cost = MeanCost()
        self._headroom = Headroom()
        self.seen: Observation | None = None  # what the law was last told; None while it was not asked
        self._rates: dict[Key, float] = {}  # records per second, by partition, fading
        self._at: float | None = None
        self._outstanding = 0.0  # fading
        self._response = 0.0  # mean response time, fading
        self._silent = 0.0  # saturated seconds since the engine was last heard
        self._heard: float | None = None  # when feedback last came, or was not owed

    def step(self, now: float, partitions: Mapping[Key, PartitionPeriod], engine: EnginePeriod) -> dict[Key, Budget]:
        period = self._settings.period if self._at is None else max(1e-3, now - self._at)
        self._at = now
        for key, part in partitions.items():
            rate = self._rates.get(key, 0.0)
            self._rates[key] = rate + _NEWEST * (part.arrived / period - rate)
        self._cost.observe(busy=engine.busy, count=engine.worked, elapsed=period)

        outstanding = sum(seen.outstanding for seen in partitions.values())
        cost = self._cost.value or 0.0
        offered = {key: self._rates[key] * cost for key in partitions}
        budget = self._without_law(now, outstanding, engine)
        slot_limit = UNLIMITED
        self.seen = None
        if budget is None:
            assert self._law is not None
            seen = self.seen = self._observe(period, partitions, outstanding, engine)
            # The law regulates the mean of the backlog, the guard bounds its peak: during a batch's
            # overhead nothing is finished, so the backlog swings by half of what arrives meanwhile.
            peak = self._settings.set_point + (engine.overhead or 0.0) / 2
            budget = replace(self._law.step(seen), limit=peak * seen.headroom)
            share = slot_share(engine.overhead, seen.set_point)
            slot_limit = peak * share
            offered_now = seen.arrival_rate * seen.cost
            fits = offered_now <= share * engine.slots and max(offered.values(), default=0.0) <= share
            # A law that regulates growth sheds at the swings of a micro-batch engine's queue even while all fits.
            if self._settings.guarded and fits and seen.backlog < seen.set_point:
                rate = _BURST * share * engine.slots
                budget = replace(budget, rate=rate, period=2.0, reason=Reason.ON_TARGET)
        return split(budget, offered, slot_limit=slot_limit, guarded=self._settings.guarded)

    def _observe(
        self, period: float, partitions: Mapping[Key, PartitionPeriod], outstanding: int, engine: EnginePeriod
    ) -> Observation:
        cost = self._cost.value
        assert cost is not None, "a law is asked only after the first feedback"
        shed = sum(seen.shed for seen in partitions.values())
        self._headroom.engine(engine.slots)
        near = outstanding * cost / self._headroom.value > _SATURATED * self._settings.set_point
        if outstanding > 0 and (shed > 0 or near):
            self._silent += period
            if engine.heard:  # a batch's overhead counts; an engine that has died says nothing about its speed
                self._headroom.observe(busy=engine.busy, period=self._silent)
                self._silent = 0.0
        else:
            self._silent = 0.0
        return Observation(
            period=period,
            arrived=sum(seen.arrived for seen in partitions.values()),
            admitted=sum(seen.admitted for seen in partitions.values()),
            finished=engine.finished,
            outstanding=self._smooth(outstanding),
            cost=cost,
            headroom=self._settings.headroom or self._measured_headroom(engine),
            set_point=self._settings.set_point,
        )

    def _smooth(self, outstanding: int) -> int:
        """Half of the swing that a batch engine's queue makes within a batch is no news to the law."""
        self._outstanding += 0.5 * (outstanding - self._outstanding)
        return round(self._outstanding)

    def _measured_headroom(self, engine: EnginePeriod) -> float:
        """What the engine can do *at the set point*: longer batches spend less of their time on overhead, so the
        rate that it reaches now, with a shorter queue, would underrate it and keep the queue short for ever.
        """
        lately = self._headroom.value
        if engine.parallelism is None:
            return lately
        model = engine.parallelism * slot_share(engine.overhead, self._settings.set_point)
        return min(model, _BELIEVED * lately) * self._trim(engine)

    def _trim(self, engine: EnginePeriod) -> float:
        """Below 1 while responses are measured above the set point: the model is only a model."""
        if engine.response is not None:
            self._response += 0.4 * (engine.response - self._response)
        return max(_SLOWEST_TRIM, min(1.0, 1.05 * self._settings.set_point / max(self._response, 1e-9)))

    def _without_law(self, now: float, outstanding: int, engine: EnginePeriod) -> Budget | None:
        """The budget where no law can give one; None when the law can."""
        if self._law is None:
            return Budget(reason=Reason.PASS_THROUGH, cost=self._cost.value, period=self._settings.period)
        if engine.heard or not outstanding or self._heard is None:
            self._heard = now
        if now - self._heard > self._settings.hold:
            self._silent = 0.0
            return self._degraded()
        if self._cost.value is None:
            return cold_start(self._settings.initial_records, self._settings.period)
        return None

    def _degraded(self) -> Budget:
        cost = self._cost.value
        blind = Budget(reason=Reason.NO_FEEDBACK, cost=cost, period=self._settings.period)
        if self._settings.degrade is Degrade.OPEN:
            return blind
        if self._settings.degrade is Degrade.AURORA and cost is not None:
            return replace(blind, rate=self._headroom.value)
        return replace(blind, rate=0.0, limit=0.0, cost=cost or 1.0)


def cold_start(records: int, period: float) -> Budget:
    """Before the first feedback a tuple's cost is unknown, so the record is the unit: each counts as one."""
    return Budget(limit=float(records), cost=1.0, period=period, reason=Reason.COLD_START)
