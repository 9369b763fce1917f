"""A command started wrongly ends with one clear line and a code, never with a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

ROUTE = "topics: [{raw: no-such-raw, processing: no-such-processing}]\n"


def spillway(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    return subprocess.run(
        [sys.executable, "-m", "command_line.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The line that a command ended with, after checking that it is the only one."""
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1, done
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("spillway: ")
    return lines[0]


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "gateway.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("topics: [", "--config"),
        ("", "topics"),
        (ROUTE + "controller: {taget_seconds: 3}", "controller.taget_seconds"),
        (ROUTE + "controller: {target_seconds: -1}", "controller.target_seconds"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line_that_names_it(
    config: Callable[[str], Path], text: str, named: str
) -> None:
    assert named in one_line(spillway("run", "--config", config(text)))


@pytest.mark.parametrize("command", [["run"], ["topics", "check"], ["verify"]], ids=" ".join)
def test_a_broker_that_does_not_answer_is_one_line_that_names_its_address(
    config: Callable[[str], Path], command: list[str]
) -> None:
    path = config(ROUTE + "kafka: {bootstrap_servers: '127.0.0.1:1'}")
    assert "127.0.0.1:1" in one_line(spillway(*command, "--config", path))


def test_a_missing_topic_is_one_line_that_names_it(config: Callable[[str], Path], bootstrap_servers: str) -> None:
    path = config(ROUTE + f"kafka: {{bootstrap_servers: '{bootstrap_servers}'}}")
    assert "no-such-raw" in one_line(spillway("run", "--config", path))


def test_too_few_processing_partitions_are_refused_with_the_fix(
    config: Callable[[str], Path], bootstrap_servers: str, fresh_name: Callable[[str], str]
) -> None:
    raw, processing = fresh_name("raw"), fresh_name("processing")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for answer in admin.create_topics([NewTopic(raw, 4), NewTopic(processing, 2)]).values():
        answer.result(30)
    text = f"topics: [{{raw: {raw}, processing: {processing}}}]\nkafka: {{bootstrap_servers: '{bootstrap_servers}'}}"
    line = one_line(spillway("run", "--config", config(text)))
    assert "has 2 partitions" in line
    assert "topics apply" in line


def test_a_cache_that_cannot_be_written_is_one_line_that_names_the_variable(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    line = one_line(spillway("job", *_JOB, SPILLWAY_CACHE=str(blocked / "cache")))
    assert "SPILLWAY_CACHE" in line


_JOB = ("--bootstrap-servers", "127.0.0.1:1", "--pipeline", "p", "--topics", "t", "--result", "r")


def test_a_trace_that_is_none_ends_the_demo_before_anything_starts(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("hello\nworld\n")
    assert str(trace) in one_line(spillway("demo", "--trace", trace, "--plot", tmp_path / "p.png"))


def test_secrets_are_masked_when_settings_are_shown(config: Callable[[str], Path]) -> None:
    path = config(ROUTE + "kafka: {secrets: {sasl.password: hunter2}}")
    shown = spillway("run", "--show-settings", "--config", path)
    assert shown.returncode == 0
    assert "target_seconds: 2.0" in shown.stdout
    assert "hunter2" not in shown.stdout + shown.stderr


def test_every_command_explains_itself() -> None:
    for command in ("demo", "run", "job", "topics", "verify", "kafka"):
        shown = spillway(command, "--help")
        assert shown.returncode == 0
        assert len(shown.stdout.splitlines()) > 8, command
