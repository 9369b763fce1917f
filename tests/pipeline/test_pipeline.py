"""The whole pipeline on real Kafka and real Spark: an overload is shed, and every record has its outcome."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.pipeline import JobPlan, Pipeline, wait_until
from embedded.verifier import verify
from embedded.watch import Watch


@pytest.fixture(scope="module")
def pipeline(
    bootstrap_servers: str, fresh_name: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """Four partitions, four slots, 10 ms per record, worked through under twice the capacity for ten seconds."""
    folder: Path = tmp_path_factory.mktemp("pipeline")
    made = Pipeline(
        bootstrap_servers,
        name=fresh_name("whole"),
        folder=folder,
        settings={"controller": {"initial_records": 200}},
        job=JobPlan(slots=4, cost_s={"default": 0.010}),
    )
    with made:
        made.start_job()
        made.start_gateway()
        made.await_gateways()
        made.await_job()
        for phase in ("warm=4x0.25", "surge=10x2"):
            load = made.start_load("--rate", "400", "--phase", phase)
            assert load.wait(120) == 0, load.tail()
            wait_until(made.drained, within=180, what="the load was not worked through")
        made.check_processes()
        yield made


def test_every_raw_record_has_one_outcome_and_every_admitted_one_a_result(pipeline: Pipeline) -> None:
    report = verify(pipeline.settings)
    assert report.ok, report.complaints
    assert report.raw == report.admitted + sum(report.shed.values()) + report.parked
    assert report.results == report.admitted
    assert report.repeated == 0


def test_an_overload_is_shed_for_reasons_that_are_told_and_the_rest_is_admitted(pipeline: Pipeline) -> None:
    report = verify(pipeline.settings)
    assert report.shed
    assert set(report.shed) <= {"over_budget", "backlog_full", "cold_start", "no_feedback"}
    assert report.admitted > 400  # more than the warm-up


def test_feedback_accounts_for_every_admitted_record_once(pipeline: Pipeline) -> None:
    watch = Watch(pipeline.settings)
    try:
        admitted = pipeline.count(pipeline.processing)
        wait_until(
            lambda: watch.glance() is not None and watch.feedback.finished >= admitted, within=60, what="feedback"
        )
        assert watch.feedback.finished == admitted
        assert watch.feedback.slots == 4
        assert sum(watch.feedback.responses.values()) == admitted
        assert watch.glance().outstanding == 0
        assert watch.feedback.batches.overhead is not None
    finally:
        watch.close()
