"""The reference job's work table and settings."""

import time
from pathlib import Path

import orjson
import pytest

from spark_job.__main__ import main, parser
from spark_job.errors import SettingError
from spark_job.publish import Feedback
from spark_job.reference import JobSettings
from spark_job.rows import Record
from spark_job.session import warn_of_large_buffer
from spark_job.work import Work, costs, spin

WORK = Work(default_s=0.0, classes={"dear": 0.02})


@pytest.mark.parametrize(
    ("key", "name"),
    [(b"dear:7", "dear"), (b"dear", "dear"), (b"cheap:7", "default"), (None, "default"), (b"\xff:1", "default")],
)
def test_the_class_is_the_key_up_to_the_first_colon(key: bytes | None, name: str) -> None:
    assert WORK.class_of(key) == name


def test_the_result_says_what_was_done() -> None:
    begin = time.perf_counter()
    result = WORK(Record(b"dear:1", b"", "t", 0, 0, 0.0))
    assert time.perf_counter() - begin >= 0.02
    assert orjson.loads(result) == {"key": "dear:1", "class": "dear", "work": "wait", "seconds": 0.02}


def test_spinning_uses_the_processor() -> None:
    begin = time.thread_time()
    spin(0.02)
    assert time.thread_time() - begin >= 0.02


def test_costs_are_read_as_typed() -> None:
    assert costs(["default=0.010", "dear=0.025"]) == {"default": 0.01, "dear": 0.025}


@pytest.mark.parametrize("text", ["dear", "=1", "dear=", "dear=-1", "dear=nan", "dear=inf", "dear=x"])
def test_a_cost_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        costs([text])
    assert caught.value.setting == "--cost"


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("--topics", {"topics": [""]}),
        ("--progress", {"progress": "never"}),
        ("--min-partitions", {"min_partitions": 0}),
        ("--max-offsets-per-trigger", {"max_offsets_per_trigger": 0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: str, changed: dict[str, object]) -> None:
    good = {
        "bootstrap_servers": "b",
        "topics": ["t"],
        "result": "r",
        "feedback": Feedback(pipeline="p", bootstrap_servers="b"),
        "checkpoint": "c",
    }
    JobSettings(**good)  # type: ignore[arg-type]
    with pytest.raises(SettingError) as caught:
        JobSettings(**good | changed)  # type: ignore[arg-type]
    assert caught.value.setting == setting


def test_work_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingError) as caught:
        Work(kind="nap")  # type: ignore[arg-type]
    assert caught.value.setting == "--work"


def test_a_broker_that_does_not_answer_is_one_line_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("spark_job.reference._ANSWER_S", 0.5)
    given = ["--bootstrap-servers", "127.0.0.1:1", "--pipeline", "p", "--topics", "t", "--result", "r"]
    assert main(given) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("spillway: no Kafka broker answers at 127.0.0.1:1")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_defaults_of_the_command_line() -> None:
    given = parser().parse_args(["--bootstrap-servers", "b", "--pipeline", "p", "--topics", "t", "--result", "r"])
    assert (given.master, given.work, given.progress) == (None, "wait", "async")


@pytest.mark.parametrize(("size", "warned"), [("16", False), ("4096", False), ("64k", True), ("65536", True)])
def test_a_large_buffer_is_warned_of(size: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_large_buffer(size)
    assert bool(caplog.records) is warned
