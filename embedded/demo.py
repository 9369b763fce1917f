"""The demo: the same load on the same job twice, once with shedding and once without, measured from outside."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from embedded.broker import KafkaCluster
from embedded.errors import EmbeddedError
from embedded.jars import KAFKA_BROKER, SPARK_CONNECTOR, fetch
from embedded.measure import M, Measurement, Samples, measure, read
from embedded.pipeline import JobPlan, Pipeline, wait_until
from embedded.verifier import Verification, verify
from embedded.watch import Glance, Watch
from protocol.histogram import quantile

PHASES = ("calm1", "surge", "calm2")
WARM_UP = "warmup"

_CALM, _SURGE = 0.5, 2.0  # of capacity
_WARM_UPS = (f"{WARM_UP}=4x0.25", f"{WARM_UP}=6x0.5")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    target_s: float = 2.0
    seconds: float = 48.0  # of load, in each of the two runs
    slots: int = 4
    partitions: int = 4
    cost_s: float = 0.020
    trace: Path | None = None
    one_partition: bool = False  # all load on the first partition
    seed: int = 1

    @property
    def capacity(self) -> float:
        """Records per second that the slots could work through without any overhead."""
        return (1 if self.one_partition else self.slots) / self.cost_s

    def phase_seconds(self) -> tuple[float, float, float]:
        """A quarter calm, half surge, a quarter calm."""
        return self.seconds / 4, self.seconds / 2, self.seconds / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where the demo is, for whoever shows it."""

    run: str  # "with" or "without"
    phase: str
    elapsed_s: float
    total_s: float
    glance: Glance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    measurement: Measurement
    verification: Verification
    surge_results_per_s: float  # results that appeared during the surge
    surge_rate: float  # records that arrived per second of surge
    overhead_s: float | None
    cost_s: float
    slots: int
    feedback_p50_s: float | None


Show = Callable[[Moment], None]
Say = Callable[[str], None]


def run_demo(plan: DemoPlan, *, folder: Path, say: Say, show: Show) -> dict[str, Any]:
    """Both runs and the comparison, as the plain values of the demo's JSON."""
    fetch(KAFKA_BROKER)
    fetch(SPARK_CONNECTOR)
    say("starting Kafka …")
    with KafkaCluster.start(log_dir=folder) as cluster:
        results = {
            name: _run_once(name, plan, cluster.bootstrap_servers, folder=folder / name, say=say, show=show)
            for name in ("with", "without")
        }
    return summary(plan, results)


def _run_once(name: str, plan: DemoPlan, servers: str, *, folder: Path, say: Say, show: Show) -> RunResult:
    shedding = name == "with"
    pipeline = Pipeline(
        servers,
        name=f"demo-{name}",
        folder=folder,
        partitions=plan.partitions,
        settings={
            "controller": {"target_seconds": plan.target_s, "load_manager": "ctrl" if shedding else "none"},
        },
        job=JobPlan(slots=plan.slots, cost_s={"default": plan.cost_s}),
    )
    with pipeline:
        say(f"{name} shedding: starting Spark and the gateway …")
        pipeline.start_job()
        pipeline.start_gateway()
        pipeline.await_gateways()
        pipeline.await_job()
        watch = Watch(pipeline.settings)
        try:
            say(f"{name} shedding: warming up …")
            _warm_up(plan, pipeline)
            before = _sums(watch)
            overheads = _play(name, plan, pipeline, watch, show)
            after = _sums(watch)
        finally:
            watch.close()
    say(f"{name} shedding: reading every topic to check and measure …")
    samples = read(pipeline.settings.client_properties(), raw=[pipeline.raw], result=pipeline.result)
    samples = _with_phases(samples, plan)
    surge = _surge(samples)
    busy, worked = after[0] - before[0], after[1] - before[1]
    responses = {index: count - before[2].get(index, 0) for index, count in after[2].items()}
    return RunResult(
        measurement=measure(_without_warm_up(samples), plan.target_s),
        verification=verify(pipeline.settings),
        surge_results_per_s=surge.results_per_s,
        surge_rate=surge.rate,
        overhead_s=median(overheads) if overheads else watch.feedback.batches.overhead,
        cost_s=busy / worked if worked else plan.cost_s,
        slots=watch.feedback.slots or plan.slots,
        feedback_p50_s=quantile({index: count for index, count in responses.items() if count > 0}, 0.5),
    )


def _warm_up(plan: DemoPlan, pipeline: Pipeline) -> None:
    """Spark's first batches take seconds, whatever is in them; they are not what the demo is about."""
    for phase in _WARM_UPS:
        load = pipeline.start_load("--rate", str(plan.capacity), "--phase", phase, "--seed", str(plan.seed))
        if code := load.wait(60):
            raise EmbeddedError(f"the load generator ended with {code}: {load.tail(1)}")
        wait_until(pipeline.drained, within=120, what="the warm-up's records were not worked through")


def _play(name: str, plan: DemoPlan, pipeline: Pipeline, watch: Watch, show: Show) -> list[float]:
    """Play the load until every record of it is dealt with; the batch overheads seen while it surged."""
    overheads: list[float] = []
    load = pipeline.start_load(*_load_arguments(plan))
    began = time.monotonic()
    patience = plan.seconds * (_SURGE + 2) + 60  # without shedding the surge's backlog is worked off afterwards
    while True:
        elapsed = time.monotonic() - began
        phase = phase_at(elapsed, plan) if load.alive() else "draining"
        show(Moment(run=name, phase=phase, elapsed_s=elapsed, total_s=plan.seconds, glance=watch.glance()))
        if phase in ("surge", "trace") and (overhead := watch.feedback.batches.overhead) is not None:
            overheads.append(overhead)
        pipeline.check_processes()
        if not load.alive() and pipeline.drained():
            break
        if elapsed > patience:
            raise EmbeddedError(f"the load was not worked through within {patience:g} s (logs: {pipeline.folder})")
        time.sleep(0.25)
    if code := load.wait(10):
        raise EmbeddedError(f"the load generator ended with {code}: {load.tail(1)}")
    return overheads


def _load_arguments(plan: DemoPlan) -> list[str]:
    arguments = ["--rate", str(plan.capacity), "--seed", str(plan.seed)]
    if plan.one_partition:
        arguments += ["--partition", "0"]
    if plan.trace is not None:
        return [*arguments, "--trace", str(plan.trace), "--seconds", str(plan.seconds)]
    loads = (_CALM, _SURGE, _CALM)
    for phase, seconds, load in zip(PHASES, plan.phase_seconds(), loads, strict=True):
        arguments += ["--phase", f"{phase}={seconds:g}x{load:g}"]
    return arguments


def phase_at(elapsed: float, plan: DemoPlan) -> str:
    if plan.trace is not None:
        return "trace"
    for phase, seconds in zip(PHASES, plan.phase_seconds(), strict=True):
        if elapsed < seconds:
            return phase
        elapsed -= seconds
    return PHASES[-1]


def _with_phases(samples: Samples, plan: DemoPlan) -> Samples:
    """A trace knows busy and quiet seconds: busy is the surge, quiet is calm before and after the middle."""
    if plan.trace is None:
        return samples
    names = np.array(samples.names)[samples.phase]
    played = names != WARM_UP
    middle = samples.arrived_s[played].min() + plan.seconds / 2 if played.any() else 0.0
    quiet = np.where(samples.arrived_s < middle, 0, 2)
    phase = np.where(names == WARM_UP, 3, np.where(names == "busy", 1, quiet))
    return Samples(arrived_s=samples.arrived_s, answered_s=samples.answered_s, phase=phase, names=(*PHASES, WARM_UP))


def _without_warm_up(samples: Samples) -> Samples:
    keep = np.array([name != WARM_UP for name in samples.names])[samples.phase]
    return Samples(
        arrived_s=samples.arrived_s[keep],
        answered_s=samples.answered_s[keep],
        phase=samples.phase[keep],
        names=samples.names,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surge:
    rate: float
    results_per_s: float


def _surge(samples: Samples) -> _Surge:
    """Of the surge: arrivals per second, and results that appeared per second, whichever record they answer."""
    if "surge" not in samples.names:
        return _Surge(rate=0.0, results_per_s=0.0)
    arrived = samples.arrived_s[samples.phase == samples.names.index("surge")]
    if len(arrived) < 2:
        return _Surge(rate=0.0, results_per_s=0.0)
    # In a trace the surge has gaps: only seconds in which it is on count.
    seconds = np.unique(np.floor(arrived - arrived.min()))
    answered = np.floor(samples.answered_s - arrived.min())
    return _Surge(
        rate=len(arrived) / len(seconds),
        results_per_s=float(np.isin(answered, seconds).sum()) / len(seconds),
    )


def _sums(watch: Watch) -> tuple[float, int, dict[int, int]]:
    watch.glance()
    return watch.feedback.busy, watch.feedback.worked, dict(watch.feedback.responses)


def least_loss(*, target_s: float, overhead_s: float, cost_s: float, slots: float, rate: float) -> float:
    """The least share that must be lost for a mean response at the target, results visible as computed."""
    share = max(0.0, 1 - overhead_s / (target_s - overhead_s / 2)) if target_s > overhead_s / 2 else 0.0
    return max(0.0, 1 - share * slots / (cost_s * rate)) if rate else 0.0


def summary(plan: DemoPlan, results: Mapping[str, RunResult]) -> dict[str, Any]:
    shed, kept = results["with"], results["without"]
    checked = shed.verification
    return {
        "target_s": plan.target_s,
        **{name: _by_phase(result.measurement) for name, result in results.items()},
        "accounting": {
            "raw": checked.raw,
            "admitted": checked.admitted,
            "shed": sum(checked.shed.values()),
            "parked": checked.parked,
            "results": checked.results,
        },
        "capacity_per_s": kept.surge_results_per_s,
        "least_loss": least_loss(
            target_s=plan.target_s,
            overhead_s=shed.overhead_s or 0.0,
            cost_s=shed.cost_s,
            slots=1 if plan.one_partition else shed.slots,
            rate=shed.surge_rate,
        ),
        "series": {name: [asdict(bin) for bin in result.measurement.bins] for name, result in results.items()},
        "feedback_p50_s": shed.feedback_p50_s,
        "overhead_s": shed.overhead_s,
        "cost_s": shed.cost_s,
        "complaints": {name: list(result.verification.complaints) for name, result in results.items()},
    }


def _by_phase(measurement: Measurement) -> dict[str, Any]:
    return {
        **{phase: asdict(measurement.phases.get(phase, M())) for phase in PHASES},
        "all": asdict(measurement.all),
    }
