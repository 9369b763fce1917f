"""A real Kafka cluster (KRaft, one or three brokers) on this machine's loopback, from Maven jars."""

import base64
import contextlib
import logging
import os
import random
import shutil
import socket
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from embedded.errors import EmbeddedError
from embedded.jars import KAFKA_BROKER, fetch
from embedded.java import find_java
from embedded.lifeline import Child

HOST = "127.0.0.1"
START_SECONDS = 120.0  # of a broker on a busy machine; four on an idle one
# The quickest start of those tried, and the least CPU in the first million records: the optimising
# compiler spends more than it saves in a cluster that lives for minutes.
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET = logging.getLogger("spillway.embedded.quiet")  # a broker that is not up yet is no news
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

_LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %m (%c{1})%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server
logger.server.level = INFO
logger.config.name = kafka.server.KafkaConfig
logger.config.level = WARN
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker's place: its ports, its folder and its log."""

    number: int  # from 1
    port: int
    controller_port: int
    folder: Path
    log: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def records(self) -> Path:
        return self.folder / "records"


class KafkaCluster:
    """Started brokers; a context manager that ends them."""

    def __init__(self, nodes: tuple[Node, ...], *, passing: Path | None) -> None:
        self._nodes = nodes
        self._passing = passing  # the temporary folder that goes with the cluster
        self._java = str(find_java())
        self._classpath = os.pathsep.join(map(str, fetch(KAFKA_BROKER)))
        self.brokers: list[Child] = []

    @classmethod
    def start(
        cls,
        brokers: int = 1,
        port: int | None = None,
        data: Path | None = None,
        log_dir: Path | None = None,
    ) -> Self:
        """Back when every broker answers. With `data`, records and cluster id outlive the cluster.

        `port` is the first broker's; the others take the next ones.
        """
        if brokers not in (1, 3):
            raise EmbeddedError(f"--brokers is {brokers}; it must be 1 or 3")
        ports = _ports(brokers, port)
        passing = Path(tempfile.mkdtemp(prefix="spillway-kafka-")) if data is None else None
        root = (passing or Path(data or "")).absolute()
        logs = (log_dir or root / "logs").absolute()
        nodes = tuple(
            Node(
                number=n,
                port=ports[n - 1],
                controller_port=ports[brokers + n - 1],
                folder=root / f"broker-{n}",
                log=logs / f"broker-{n}.log",
            )
            for n in range(1, brokers + 1)
        )
        try:
            _refuse_other_size(root, brokers)
            cluster = cls(nodes, passing=passing)
        except BaseException:
            if passing:
                shutil.rmtree(passing, ignore_errors=True)
            raise
        try:
            cluster._format()
            cluster.brokers = [cluster._launch(node) for node in nodes]
            cluster._await(nodes)
        except BaseException:
            cluster._end()
            for node in nodes if passing else ():  # the log stays: the error names it
                shutil.rmtree(node.folder, ignore_errors=True)
            raise
        return cluster

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self._nodes)

    def restart(self, i: int) -> None:
        """Ends broker `i` (from 0) if it still runs and starts it on the same ports and records."""
        self.brokers[i].stop()
        self.brokers[i] = self._launch(self._nodes[i])
        self._await((self._nodes[i],))

    def wait(self) -> None:
        """Blocks while all brokers run; the first that ends by itself is an error."""
        while True:
            for broker in self.brokers:
                if not broker.alive():
                    raise EmbeddedError(f"{broker.name} ended: {_last_words(broker)}")
            time.sleep(0.5)

    def stop(self) -> None:
        self._end()
        if self._passing:
            shutil.rmtree(self._passing, ignore_errors=True)

    def _end(self) -> None:
        if self._passing:  # nobody will read these records again: no need for an orderly end
            for broker in self.brokers:
                broker.kill()
            return
        # All at once: a controller that has lost its quorum cannot release the others one by one.
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.stop()

    def _format(self) -> None:
        """Writes the settings; gives new folders their cluster id."""
        cluster_id = _cluster_id(self._nodes[0])
        formatting = []
        for node in self._nodes:
            node.folder.mkdir(parents=True, exist_ok=True)
            node.log.parent.mkdir(parents=True, exist_ok=True)
            node.properties.write_text(server_properties(node, self._nodes))
            (node.folder / "log4j2.properties").write_text(_LOG4J)
            if not (node.records / "meta.properties").exists():
                tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(node.properties))
                formatting.append(Child.start(self._command(node, *tool), node.log, name="format"))
        for child in formatting:
            if child.wait(START_SECONDS) != 0:
                raise EmbeddedError(f"Kafka's storage could not be formatted: {_last_words(child)}")

    def _launch(self, node: Node) -> Child:
        command = self._command(node, "kafka.Kafka", str(node.properties))
        return Child.start(command, node.log, name=f"broker {node.number}")

    def _command(self, node: Node, *main: str) -> list[str]:
        logging_to = f"-Dlog4j2.configurationFile={node.folder / 'log4j2.properties'}"
        return [self._java, *_JVM, logging_to, "-cp", self._classpath, *main]

    def _await(self, nodes: tuple[Node, ...]) -> None:
        """Until each of these answers, and knows as many brokers as are running."""
        deadline = time.monotonic() + START_SECONDS
        for node in nodes:
            while not _listens(node.port):
                self._check(node, deadline)
            admin = AdminClient({"bootstrap.servers": node.address, "reconnect.backoff.max.ms": 200}, logger=_QUIET)
            while not self._complete(admin):
                self._check(node, deadline)

    def _complete(self, admin: AdminClient) -> bool:
        with contextlib.suppress(KafkaException):
            known = len(admin.list_topics(timeout=2.0).brokers)
            return known >= sum(broker.alive() for broker in self.brokers)
        return False

    def _check(self, node: Node, deadline: float) -> None:
        broker = self.brokers[node.number - 1]
        if not broker.alive():
            raise EmbeddedError(f"{broker.name} ended while starting: {_last_words(broker)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"{broker.name} did not answer within {START_SECONDS:.0f} s; its log is {node.log}")
        time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _last_words(child: Child) -> str:
    """The end of the log in one line, without stack frames, and where the rest is."""
    said = [line for line in child.tail(200).splitlines() if line and not line[0].isspace()]
    return f"{' / '.join(said[-2:]) or 'it said nothing'} (log: {child.log})"


def server_properties(node: Node, nodes: tuple[Node, ...]) -> str:
    copies = min(3, len(nodes))
    in_sync = 2 if copies == 3 else 1
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": ",".join(f"{n.number}@{HOST}:{n.controller_port}" for n in nodes),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": node.records,
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # A broker killed with -9 comes back when its old session has expired; the default is 9 s.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.enable": "true",
        "log.segment.delete.delay.ms": 1000,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _cluster_id(node: Node) -> str:
    with contextlib.suppress(OSError):
        for line in (node.records / "meta.properties").read_text().splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2]
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _refuse_other_size(root: Path, brokers: int) -> None:
    held = len(list(root.glob("broker-*/records/meta.properties")))
    if held and held != brokers:
        raise EmbeddedError(f"--brokers is {brokers}; {root} holds the records of {held}, so it must be {held}")


def _ports(brokers: int, first: int | None) -> list[int]:
    """A port per broker, then one per controller, all free a moment ago."""
    given = [first + n for n in range(brokers)] if first else []
    with contextlib.ExitStack() as held:
        for port in given:
            if not _bind(held, port):
                raise EmbeddedError(f"--port {port} is taken; choose another, or leave it out for a free one")
        found = list(given)
        # Below the range of outgoing connections: a client that retries a killed broker's port
        # there can be given that very port, connect to itself and keep the broker from coming back.
        while len(found) < 2 * brokers:
            port = random.randrange(20_000, 32_000)
            if port not in found and _bind(held, port):
                found.append(port)
    return found


def _bind(held: contextlib.ExitStack, port: int) -> bool:
    sock = held.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except (OSError, OverflowError):
        return False
    return True


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False
