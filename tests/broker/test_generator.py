import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from embedded.reading import Offsets, Reading

Names = Callable[[str], str]


@pytest.fixture
def topic(bootstrap_servers: str, fresh_name: Names) -> str:
    name = fresh_name("load")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
    while name not in admin.list_topics(timeout=30).topics:
        pass  # the controller knows it, the broker in a moment
    return name


def generate(*options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "embedded.generator", *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def records(servers: str, topic: str) -> list[tuple[int, bytes, dict[str, Any]]]:
    """Partition, key and value of everything in the topic, by sequence number."""
    properties = {"bootstrap.servers": servers}
    spans = Offsets(properties).spans([topic])
    with Reading(properties, {part: span.low for part, span in spans.items()}) as reading:
        found = [
            (message.partition() or 0, message.key() or b"", json.loads(message.value() or b""))
            for batch in reading.until({part: span.high for part, span in spans.items()})
            for message in batch
        ]
    return sorted(found, key=lambda record: int(record[2]["n"]))


def test_the_generator_sends_its_phases_in_their_time_and_tells_what_it_did(bootstrap_servers: str, topic: str) -> None:
    phases = ("--phase", "calm=0.5x0.5", "--phase", "surge=0.5x2")
    done = generate("--brokers", bootstrap_servers, "--topic", topic, "--rate", "400", *phases)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    sent = records(bootstrap_servers, topic)
    assert [value["n"] for _, _, value in sent] == list(range(told["scheduled"]))
    counts = {phase["name"]: phase["sent"] for phase in told["phases"]}
    assert {name: sum(value["phase"] == name for _, _, value in sent) for name in counts} == counts
    assert 1.0 <= told["end_s"] - told["begin_s"] < 1.0 + told["lag_max_s"] + 0.1
    assert all(key.decode() == value["key"] for _, key, value in sent)
    assert (np.bincount([partition for partition, _, _ in sent], minlength=4) > 0).all()


def test_all_load_may_go_to_one_partition_with_padded_values(bootstrap_servers: str, topic: str) -> None:
    options = ("--rate", "100", "--phase", "on=0.3x1", "--partition", "2", "--payload-bytes", "300")
    done = generate("--brokers", bootstrap_servers, "--topic", topic, *options)
    assert done.returncode == 0, done.stderr
    sent = records(bootstrap_servers, topic)
    assert {partition for partition, _, _ in sent} == {2}
    assert {len(json.dumps(value, separators=(",", ":"))) for _, _, value in sent} == {300}


def test_a_load_that_cannot_be_sent_is_one_line(bootstrap_servers: str, topic: str) -> None:
    for options, says in (
        (("--topic", f"{topic}-absent"), "Unknown topic"),
        (("--topic", topic, "--partition", "4"), "--partition"),
        (("--topic", topic, "--phase", "surge"), "NAME=SECONDSxLOAD"),
    ):
        done = generate("--brokers", bootstrap_servers, "--rate", "10", *options)
        assert done.returncode == 1
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
        assert not done.stdout
