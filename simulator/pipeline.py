"""Gateway and engine together in virtual time, on the decision code that production runs."""

from dataclasses import dataclass

import numpy as np

from controller.batch import Batch
from controller.batch_model import BatchModel
from controller.budget import Budget
from controller.gate import Actuator, Gate
from controller.governor import EnginePeriod, Governor, GovernorSettings, PartitionPeriod, cold_start
from controller.random_shedder import RandomShedder
from controller.seams import LoadManager
from simulator.micro_batch import MicroBatchEngine, Result

POLL = 0.02  # seconds between polls of the gateway
FEEDBACK = 0.1  # seconds between progress reports of a task


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    offered: int
    admitted: int
    results: tuple[Result, ...]

    @property
    def loss(self) -> float:
        return 1 - self.admitted / self.offered if self.offered else 0.0

    def means_by_second(self) -> dict[int, float]:
        """Mean response time of the tuples that arrived in each second."""
        seconds: dict[int, list[float]] = {}
        for result in self.results:
            seconds.setdefault(int(result.arrived), []).append(result.finished - result.arrived)
        return {second: sum(times) / len(times) for second, times in sorted(seconds.items())}


def simulate(
    arrivals: list[tuple[float, int, float]],
    engine: MicroBatchEngine,
    settings: GovernorSettings,
    law: LoadManager | None,
    *,
    actuator: Actuator = Actuator.GUARDED,
    seed: int = 1,
) -> Run:
    """Play (time, partition, cost) in order; feedback reaches the gateway every 100 ms, budgets every period."""
    draws = np.random.default_rng(seed)
    count = engine.partitions
    governor: Governor[int] = Governor(settings, law)
    shedders = [RandomShedder(Gate(actuator, trickle_per_second=1.0)) for _ in range(count)]
    budgets: dict[int, Budget] = {
        p: cold_start(max(1, settings.initial_records // count), settings.period) for p in range(count)
    }
    admitted, seen_finished = [0] * count, [0] * count
    arrived_now, admitted_now, shed_now = [0] * count, [0] * count, [0] * count
    finished, busy, waited = 0, 0.0, 0.0
    model, modelled = BatchModel(), 0
    fresh: list[Result] = []
    next_feedback, next_step = FEEDBACK, settings.period
    at = 0.0
    position = 0
    end = (arrivals[-1][0] if arrivals else 0.0) + 30.0
    while at < end:
        at += POLL
        results, seconds = engine.advance(at)
        fresh += results
        busy += seconds
        if at >= next_feedback:
            next_feedback += FEEDBACK
            for result in fresh:
                seen_finished[result.partition] += 1
            finished += len(fresh)
            waited += sum(result.finished - result.arrived for result in fresh)
            fresh = []
        polled: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        while position < len(arrivals) and arrivals[position][0] <= at:
            time, partition, cost = arrivals[position]
            polled[partition].append((time, cost))
            position += 1
        for partition, records in enumerate(polled):
            if not records:
                continue
            budget = budgets[partition]
            batch = Batch(
                at=np.array([time for time, _ in records]),
                outstanding=(admitted[partition] - seen_finished[partition]) * (budget.cost or 0.0),
            )
            verdicts = shedders[partition].admit(batch, budget, draws.random(len(records)))
            kept = verdicts.admitted.tolist()
            for (time, cost), keep in zip(records, kept, strict=True):
                if keep:
                    engine.admit(partition, time, cost)
            arrived_now[partition] += len(records)
            admitted_now[partition] += sum(kept)
            shed_now[partition] += len(records) - sum(kept)
            admitted[partition] += sum(kept)
        while modelled < len(engine.batches) and engine.batches[modelled][0] <= at:
            begins, work = engine.batches[modelled]
            model.started(run="simulated", batch=modelled, at=begins)
            for partition, seconds in work.items():
                model.worked(run="simulated", batch=modelled, task=partition, busy=seconds)
            modelled += 1
        if at >= next_step:
            next_step += settings.period
            periods = {
                p: PartitionPeriod(
                    arrived=arrived_now[p],
                    admitted=admitted_now[p],
                    shed=shed_now[p],
                    outstanding=admitted[p] - seen_finished[p],
                )
                for p in range(count)
            }
            engine_period = EnginePeriod(
                heard=finished > 0,
                finished=finished,
                worked=finished,
                busy=busy if finished else 0.0,
                response=waited / finished if finished else None,
                slots=engine.slots,
                overhead=model.overhead,
                parallelism=model.parallelism,
            )
            budgets = governor.step(at, periods, engine_period)
            if finished:
                busy = 0.0
            finished, waited = 0, 0.0
            arrived_now, admitted_now, shed_now = [0] * count, [0] * count, [0] * count
    return Run(offered=len(arrivals), admitted=sum(admitted), results=tuple(engine.results))
