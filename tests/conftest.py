"""What every test folder may use: a broker, and names nobody else has."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from brokers import kafka_for_tests

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    with kafka_for_tests() as servers:
        yield servers


@pytest.fixture(scope="session")
def fresh_name() -> Callable[[str], str]:
    """Topics, groups and pipelines of one test never meet those of another, even on a shared broker."""
    run = os.urandom(3).hex()
    return lambda prefix: f"{prefix}-{run}-{next(_numbers)}"
