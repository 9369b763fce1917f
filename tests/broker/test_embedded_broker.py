import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from embedded.broker import KafkaCluster
from embedded.errors import EmbeddedError

SPILLWAY = (sys.executable, "-c", "from command_line.main import main; main()")


def create(servers: str, topic: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=copies)])[topic].result(60)


def write(servers: str, topic: str, values: list[bytes]) -> None:
    lost: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: lost.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not lost


def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def cluster_id(servers: str) -> str:
    return str(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).cluster_id)


def test_records_and_cluster_id_survive_a_kill_9_and_a_new_cluster_on_the_same_data(tmp_path: Path) -> None:
    with KafkaCluster.start(data=tmp_path) as cluster:
        create(cluster.bootstrap_servers, "kept", copies=1)
        write(cluster.bootstrap_servers, "kept", [b"1", b"2"])
        first_id = cluster_id(cluster.bootstrap_servers)
        cluster.brokers[0].kill()
        cluster.restart(0)
        write(cluster.bootstrap_servers, "kept", [b"3"])
        cluster.brokers[0].kill()
    with KafkaCluster.start(data=tmp_path) as again:
        assert cluster_id(again.bootstrap_servers) == first_id
        assert read(again.bootstrap_servers, "kept", 3) == [b"1", b"2", b"3"]


def test_three_brokers_form_one_cluster_that_works_on_without_one_of_them(
    fresh_name: Callable[[str], str],
) -> None:
    topic = fresh_name("replicated")
    with KafkaCluster.start(brokers=3) as cluster:
        create(cluster.bootstrap_servers, topic, copies=3)
        write(cluster.bootstrap_servers, topic, [b"before"])
        cluster.brokers[1].kill()
        write(cluster.bootstrap_servers, topic, [b"during"])
        assert read(cluster.bootstrap_servers, topic, 2) == [b"before", b"during"]
        cluster.restart(1)
        assert all(broker.alive() for broker in cluster.brokers)


def test_a_taken_port_ends_in_one_clear_line_and_no_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*SPILLWAY, "kafka", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("spillway: ")]
    assert f"--port {port} is taken" in line
    assert "Traceback" not in ended.stderr


def test_data_of_three_brokers_is_not_opened_with_one(tmp_path: Path) -> None:
    for n in (1, 2, 3):
        (tmp_path / f"broker-{n}" / "records").mkdir(parents=True)
        (tmp_path / f"broker-{n}" / "records" / "meta.properties").touch()
    with pytest.raises(EmbeddedError, match="must be 3"):
        KafkaCluster.start(brokers=1, data=tmp_path)


def test_a_broker_that_dies_while_starting_is_reported_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "records").mkdir(parents=True)
    (tmp_path / "broker-1" / "records" / "meta.properties").write_text("cluster.id=nonsense\n")
    with pytest.raises(EmbeddedError) as caught:
        KafkaCluster.start(data=tmp_path)
    assert str(tmp_path / "logs" / "broker-1.log") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_kafka_command_ends_cleanly_when_asked_to(ending: signal.Signals, tmp_path: Path) -> None:
    command = [*SPILLWAY, "kafka", "--data", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("Kafka is up at 127.0.0.1:")
        running.send_signal(ending)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "Traceback" not in errors
