import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from command_line import topics
from gateway.cluster import Cluster, explain
from gateway.errors import ClusterError
from gateway.settings import Settings

Names = Callable[[str], str]


@pytest.fixture
def pipeline(fresh_name: Names) -> str:
    return fresh_name("orders")


@pytest.fixture
def config(bootstrap_servers: str, pipeline: str, tmp_path: Path) -> Path:
    """Settings of a pipeline whose raw and result topics exist, and nothing else yet."""
    make(bootstrap_servers, f"{pipeline}-raw", 3, {"retention.ms": "7200000"})
    make(bootstrap_servers, f"{pipeline}-out", 1, {"message.timestamp.type": "LogAppendTime"})
    return write(tmp_path, bootstrap_servers, pipeline)


def write(folder: Path, servers: str, pipeline: str, **changes: Any) -> Path:
    tree = {
        "pipeline": pipeline,
        "topics": [{"raw": f"{pipeline}-raw", "processing": f"{pipeline}-in"}],
        "kafka": {"bootstrap_servers": servers},
        "own_topics": {"result": f"{pipeline}-out"},
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump({**tree, **changes}))
    return path


def make(servers: str, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})])[topic].result(30)
    while topic not in admin.list_topics(timeout=30).topics:
        pass  # the controller knows it, the broker in a moment


def run(command: str, config: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(topics.app, [command, "--config", str(config), "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, json.loads(done.stdout)


def test_check_fails_before_apply_and_passes_after_it(config: Path) -> None:
    assert run("check", config)[0] == 1
    assert run("apply", config)[0] == 0
    code, found = run("check", config)
    assert code == 0, found
    assert found["settled"]


def test_plan_changes_nothing(config: Path) -> None:
    first = run("plan", config)
    assert first[0] == 0
    assert first[1]["create"]
    assert run("plan", config) == first


def test_apply_creates_topics_as_planned(config: Path, pipeline: str, bootstrap_servers: str) -> None:
    run("apply", config)
    cluster = Cluster(Settings.load(config))
    made = cluster.describe([f"{pipeline}-in", f"{pipeline}.control", f"{pipeline}.shed"]).topics
    assert made[f"{pipeline}-in"].partitions == 3
    assert made[f"{pipeline}-in"].configs["message.timestamp.type"] == "CreateTime"
    assert made[f"{pipeline}-in"].configs["retention.ms"] == "7200000"
    assert made[f"{pipeline}.control"].configs["cleanup.policy"] == "compact"
    assert made[f"{pipeline}.shed"].partitions == 3


def test_a_second_apply_does_nothing(config: Path) -> None:
    run("apply", config)
    assert run("apply", config) == (0, {"done": [], "failed": [], "problems": []})


def test_apply_grows_and_configures_an_existing_processing_topic(
    config: Path, pipeline: str, bootstrap_servers: str
) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}
    make(bootstrap_servers, f"{pipeline}-in", 1, stamped)
    assert run("apply", config)[0] == 0
    state = Cluster(Settings.load(config)).describe([f"{pipeline}-in"]).topics[f"{pipeline}-in"]
    assert state.partitions == 3
    assert state.configs["message.timestamp.type"] == "CreateTime"
    assert state.configs["retention.ms"] == "7200000"


def test_a_plan_made_before_somebody_else_applied_it_is_no_failure(config: Path) -> None:
    from gateway.topic_plan import names, plan

    settings = Settings.load(config)
    cluster = Cluster(settings)
    stale = plan(settings, cluster.describe(names(settings)))
    assert not cluster.apply(stale).failed
    again = cluster.apply(stale)
    assert not again.failed
    assert len(again.done) == stale.changes


def test_a_missing_raw_topic_is_a_problem_that_apply_leaves_to_its_owner(
    bootstrap_servers: str, fresh_name: Names, tmp_path: Path
) -> None:
    name = fresh_name("gone")
    path = write(tmp_path, bootstrap_servers, name, own_topics={})
    code, done = run("apply", path)
    assert code == 1
    assert [problem["topic"] for problem in done["problems"]] == [f"{name}-raw"]
    assert f"{name}.control" in {item["topic"] for item in done["done"]}


def test_a_change_that_kafka_refuses_is_shown_as_failed(
    bootstrap_servers: str, config: Path, pipeline: str, tmp_path: Path
) -> None:
    path = write(tmp_path, bootstrap_servers, pipeline, own_topics={"replication_factor": 99})
    code, done = run("apply", path)
    assert code == 1
    assert {item["topic"] for item in done["failed"]} >= {f"{pipeline}.control", f"{pipeline}.shed"}
    assert [item["topic"] for item in done["done"]] == [f"{pipeline}-in"]


@pytest.mark.parametrize("command", ["plan", "apply", "check"])
def test_tables_name_every_topic_and_no_error(config: Path, pipeline: str, command: str) -> None:
    done = CliRunner().invoke(topics.app, [command, "--config", str(config)])
    assert f"{pipeline}.feedback" in done.stdout
    assert not done.stderr


def test_a_silent_broker_is_one_line_that_names_the_setting(capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings.model_validate(
        {
            "topics": [{"raw": "raw", "processing": "in"}],
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        }
    )
    with pytest.raises(ClusterError, match=r"kafka\.bootstrap_servers=127\.0\.0\.1:1: no broker answered"):
        Cluster(settings, answer_seconds=0.5).describe(["raw"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        ("topics: []", 2, "topics"),
        ("topics: [{raw: a, processing: b}]\nkafka: {properties: {no.such: 1}}", 1, "kafka.properties"),
    ],
)
def test_a_bad_setting_ends_in_one_line_without_a_traceback(tmp_path: Path, text: str, code: int, names: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    done = CliRunner().invoke(topics.app, ["check", "--config", str(path)])
    assert done.exit_code == code
    assert done.stderr.startswith("spillway: ")
    assert names in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_permission_is_named_as_such() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert explain(refused, "create topic orders").startswith("not authorised to create topic orders (TOPIC_AUTH")


def test_a_broker_that_wants_another_protocol_is_one_line(
    bootstrap_servers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.model_validate(
        {
            "topics": [{"raw": "raw", "processing": "in"}],
            "kafka": {
                "bootstrap_servers": bootstrap_servers,
                "properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "u"},
                "secrets": {"sasl.password": "hidden"},
            },
        }
    )
    with pytest.raises(ClusterError, match=r"kafka\.bootstrap_servers=") as refused:
        Cluster(settings, answer_seconds=2).describe(["raw"])
    assert "\n" not in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert capfd.readouterr() == ("", "")
