"""Finds the Kafka the tests run against: a given one, else a container, else the embedded one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kafka_for_tests() -> Iterator[str]:
    """The bootstrap servers, for as long as the block lasts."""
    if given := os.environ.get("SPILLWAY_TEST_BROKERS"):
        yield given
    elif docker_answers():
        from testcontainers.kafka import KafkaContainer

        with KafkaContainer().with_kraft() as container:
            yield container.get_bootstrap_server()
    else:
        from embedded.broker import KafkaCluster

        with KafkaCluster.start() as cluster:
            yield cluster.bootstrap_servers


def docker_answers() -> bool:
    try:
        import docker

        client = docker.from_env(timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # no package, no socket, no rights: each means no Docker here
        return False
