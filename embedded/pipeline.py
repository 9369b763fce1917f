"""A whole pipeline on this machine: topics, the reference job and gateways as processes of their own."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient, NewTopic

from embedded.errors import EmbeddedError
from embedded.jars import SPARK_CONNECTOR, fetch
from embedded.lifeline import Child
from embedded.reading import Offsets
from gateway.cluster import Cluster
from gateway.settings import Settings
from gateway.topic_plan import names, plan

# A driver that lives for minutes never earns back what the optimising compiler takes on two cores.
_SHORT_LIVED_JVM = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STARTS_WITHIN = 180.0  # seconds; Spark on a busy machine takes its time


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The reference job: how many tasks at once, and what a record of each class costs."""

    slots: int = 4
    cost_s: Mapping[str, float] = field(default_factory=lambda: {"default": 0.010})
    arguments: Sequence[str] = ()


class Pipeline:
    """Creates its topics at once; processes are started one by one and all end with this process."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        name: str,
        folder: Path,
        partitions: int = 4,
        settings: Mapping[str, Any] | None = None,
        job: JobPlan | None = None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.job_plan = job or JobPlan()
        self.raw, self.processing, self.result = f"{name}.raw", f"{name}.processing", f"{name}.result"
        self.job: Child | None = None
        self.gateways: list[Child] = []
        self.log_level = "info"
        folder.mkdir(parents=True, exist_ok=True)
        tree = {
            "pipeline": name,
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "topics": [{"raw": self.raw, "processing": self.processing}],
            "origin": True,
            "shed": {"keep": "all"},
            "own_topics": {"result": self.result},
            **(settings or {}),
        }
        self.config = folder / "gateway.yaml"
        self.config.write_text(yaml.safe_dump(tree), encoding="utf-8")
        self.settings = Settings.load(self.config)
        self._offsets = Offsets(self.settings.client_properties())
        self._create_topics(partitions)

    def _create_topics(self, partitions: int) -> None:
        admin = AdminClient(self.settings.client_properties())
        by_broker = {"message.timestamp.type": "LogAppendTime"}
        wanted = [NewTopic(topic, partitions, config=by_broker) for topic in (self.raw, self.result)]
        for answer in admin.create_topics(wanted).values():
            answer.result(30)
        self.apply_topics()

    def apply_topics(self) -> None:
        """As `spillway topics apply`: again after the raw topic's configuration has changed."""
        cluster = Cluster(self.settings)
        applied = cluster.apply(plan(self.settings, cluster.describe(names(self.settings))))
        if applied.failed:
            raise EmbeddedError(f"topics of {self.name} could not be made: {applied.failed[0]}")

    def start_job(self) -> Child:
        """Start the job; ``await_job`` waits until its query runs."""
        jars = ",".join(str(jar) for jar in fetch(SPARK_CONNECTOR))
        costs = [part for name, cost in self.job_plan.cost_s.items() for part in ("--cost", f"{name}={cost:g}")]
        command = [sys.executable, "-m", "spark_job", "--bootstrap-servers", self.settings.kafka.bootstrap_servers]
        command += ["--pipeline", self.name, "--topics", self.processing, "--result", self.result]
        command += ["--master", f"local[{self.job_plan.slots}]", "--jars", jars]
        command += ["--conf", _SHORT_LIVED_JVM, *costs, *self.job_plan.arguments]
        self.job = Child.start(command, self.folder / "job.log", env=_environment(), name="Spark job", grace=15)
        return self.job

    def await_job(self) -> None:
        assert self.job is not None
        _await(self.job, lambda text: " runs" in text, "its query did not start")

    def start_gateway(self, **variables: str) -> Child:
        """Start one more gateway; ``variables`` are settings as environment variables."""
        number = len(self.gateways) + 1
        child = Child.start(
            [sys.executable, "-m", "command_line.main", "run", "--config", self.config, "--log-level", self.log_level],
            self.folder / f"gateway-{number}.log",
            env=_environment() | {"SPILLWAY_REPLICA": f"gateway-{number}"} | variables,
            name=f"gateway {number}",
            grace=30,
        )
        self.gateways.append(child)
        return child

    def await_gateways(self) -> None:
        for gateway in self.gateways:
            _await(gateway, lambda text: "took over" in text, "it got no partitions")

    def start_load(self, *arguments: str) -> Child:
        command = [sys.executable, "-m", "embedded.generator", "--brokers", self.settings.kafka.bootstrap_servers]
        command += ["--topic", self.raw, *arguments]
        return Child.start(command, self.folder / "load.log", env=_environment(), name="load generator", grace=5)

    def check_processes(self) -> None:
        """Raises EmbeddedError, with the log's last line, if the job or a gateway has died."""
        for child in (*self.gateways, *([self.job] if self.job else [])):
            if not child.alive():
                raise EmbeddedError(f"the {child.name} has ended: {child.tail(1)} (log: {child.log})")

    def count(self, topic: str) -> int:
        """How many offsets a topic holds."""
        return sum(len(span) for span in self._offsets.spans([topic]).values())

    def drained(self) -> bool:
        """Whether every raw record has been decided on and every admitted one has a result."""
        own = f"{self.name}."
        outcomes = sum(self.count(topic) for topic in (self.processing, own + "shed", own + "parked"))
        return outcomes >= self.count(self.raw) and self.count(self.result) >= self.count(self.processing)

    def stop(self) -> None:
        """Gateways first: they drain into the processing topic."""
        for child in (*self.gateways, *([self.job] if self.job else [])):
            child.terminate()
        for child in (*self.gateways, *([self.job] if self.job else [])):
            child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_until(condition: Callable[[], bool], *, within: float, what: str, every: float = 0.2) -> None:
    """Raises EmbeddedError if the condition does not hold in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise EmbeddedError(f"{what} within {within:g} s")
        time.sleep(every)


def _await(child: Child, ready: Callable[[str], bool], trouble: str) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while not ready(child.log.read_text(errors="replace")):
        if not child.alive():
            raise EmbeddedError(f"the {child.name} has ended: {child.tail(1)} (log: {child.log})")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"the {child.name} does not start: {trouble} within {_STARTS_WITHIN:g} s: {child.log}")
        time.sleep(0.1)


def _environment() -> dict[str, str]:
    """This process's own, without settings that are meant for somebody else's gateway."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SPILLWAY_") or name in ("SPILLWAY_CACHE",)
    }
