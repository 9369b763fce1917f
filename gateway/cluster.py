"""Topics of a live cluster: their description, and a plan applied to them, in bounded time and one-line errors."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from gateway.errors import ClusterError
from gateway.settings import Settings
from gateway.topic_plan import ClusterState, Configure, Create, Grow, Plan, TopicState

ANSWER_SECONDS = 10.0
_PROPAGATION_S = 0.3
_PAUSE_S = 0.05

_Result = TypeVar("_Result")
_Change = Create | Grow | Configure

_UNAUTHORISED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_SILENT = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
_REFUSED_LOGIN = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
# A topic that was just made is not yet led everywhere; these pass by themselves.
_PASSING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}

_SILENCE = logging.getLogger("spillway.librdkafka")
_SILENCE.addHandler(logging.NullHandler())
_SILENCE.propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    change: _Change
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a plan's execution came to; ``done`` holds also what somebody else had done meanwhile."""

    done: tuple[_Change, ...]
    failed: tuple[Failure, ...]


class Cluster:
    """One administrative connection, made when first used."""

    def __init__(self, settings: Settings, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._servers = settings.kafka.bootstrap_servers
        self._wait = answer_seconds
        self._troubles: list[KafkaError] = []
        self._admin = quiet_client(AdminClient, settings.client_properties(), self._troubles.append)

    def describe(self, names: Iterable[str]) -> ClusterState:
        """The state of those of ``names`` that exist; raises ClusterError where the cluster does not tell."""
        wanted = list(dict.fromkeys(names))
        found = self._shapes(wanted)
        absent = [name for name in wanted if name not in found]
        if absent:  # a topic made a moment ago may not have reached this broker: one more look
            time.sleep(_PROPAGATION_S)
            found |= self._shapes(absent)
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in found}
        configs: dict[str, dict[str, str]] = {}
        if resources:
            answers = self._ask(
                lambda: self._admin.describe_configs(list(resources.values()), request_timeout=self._wait)
            )
            for name, resource in resources.items():
                entries = self._result(answers[resource], f"describe the configuration of topic {name}")
                configs[name] = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        return ClusterState(
            topics={
                name: TopicState(partitions=partitions, replication=copies, configs=configs[name])
                for name, (partitions, copies) in found.items()
            }
        )

    def _shapes(self, names: list[str]) -> dict[str, tuple[int, int]]:
        """Partitions and replication factor of those that exist."""
        found: dict[str, tuple[int, int]] = {}
        if not names:
            return found
        answers = self._ask(lambda: self._admin.describe_topics(TopicCollection(names), request_timeout=self._wait))
        for name in names:
            try:
                parts = self._result(answers[name], f"describe topic {name}").partitions
            except _NoSuchTopic:
                continue
            found[name] = len(parts), min((len(part.replicas) for part in parts), default=0)
        return found

    def apply(self, plan: Plan) -> Applied:
        """Carries out what the plan creates, grows and configures; a second time changes nothing."""
        done: list[_Change] = []
        failed: list[Failure] = []

        def settle(changes: Iterable[_Change], answer: Future[Any], fine: set[int], what: str) -> None:
            try:
                self._result(answer, what, fine)
            except ClusterError as error:
                failed.extend(Failure(change=change, error=str(error)) for change in changes)
            else:
                done.extend(changes)

        if plan.create:
            topics = [
                NewTopic(item.topic, item.partitions, item.replication, config=dict(item.configs))
                for item in plan.create
            ]
            answers = self._ask(lambda: self._admin.create_topics(topics, request_timeout=3 * self._wait))
            for created in plan.create:
                settle(
                    [created],
                    answers[created.topic],
                    {KafkaError.TOPIC_ALREADY_EXISTS},
                    f"create topic {created.topic}",
                )
            self._await({item.topic: 1 for item in done})
        if plan.grow:
            now = self.describe(item.topic for item in plan.grow).topics
            missing = [item for item in plan.grow if item.topic not in now or now[item.topic].partitions < item.to]
            done.extend(item for item in plan.grow if item not in missing)
            if missing:
                more = [NewPartitions(item.topic, item.to) for item in missing]
                answers = self._ask(lambda: self._admin.create_partitions(more, request_timeout=3 * self._wait))
                for grown in missing:
                    settle([grown], answers[grown.topic], set(), f"add partitions to topic {grown.topic}")
                self._await({item.topic: item.to for item in missing if item in done})
        by_topic: dict[str, list[Configure]] = {}
        for change in plan.configure:
            by_topic.setdefault(change.topic, []).append(change)
        if by_topic:
            resources = {name: _altered(name, changes) for name, changes in by_topic.items()}
            answers = self._ask(
                lambda: self._admin.incremental_alter_configs(list(resources.values()), request_timeout=3 * self._wait)
            )
            for name, resource in resources.items():
                settle(by_topic[name], answers[resource], set(), f"configure topic {name}")
        return Applied(done=tuple(done), failed=tuple(failed))

    def _await(self, partitions: Mapping[str, int]) -> None:
        """Until the brokers tell of what the controller has made, so that a check right after sees it."""
        until = time.monotonic() + self._wait
        while time.monotonic() < until:
            found = self._shapes(list(partitions))
            if all(name in found and found[name][0] >= count for name, count in partitions.items()):
                return
            time.sleep(_PAUSE_S)

    def _ask(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except KafkaException as error:
            raise ClusterError(self._explain(error, "ask the cluster")) from None

    def _result(self, answer: Future[Any], what: str, fine: set[int] | None = None) -> Any:
        try:
            # librdkafka keeps the request's own time-out; the margin only guards against a lost answer.
            return answer.result(timeout=4 * self._wait)
        except KafkaException as error:
            code = error.args[0].code()
            if code in (fine or ()):
                return None
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _NoSuchTopic(f"cannot {what}: there is no such topic") from None
            raise ClusterError(self._explain(error, what)) from None
        except TimeoutError:
            raise ClusterError(self._unreachable()) from None

    def _explain(self, error: KafkaException, what: str) -> str:
        if error.args[0].code() in _SILENT:
            return self._unreachable()
        return explain(error, what)

    def _unreachable(self) -> str:
        self._admin.poll(0)  # hands over what librdkafka has met meanwhile
        return unreachable(self._servers, self._wait, self._troubles)


class _NoSuchTopic(ClusterError):
    pass


def quiet_client(
    make: Callable[..., _Result],
    properties: Mapping[str, Any],
    on_error: Callable[[KafkaError], object] = lambda _: None,
) -> _Result:
    """A Kafka client that writes nothing to stderr; its troubles go to ``on_error``."""
    try:
        return make({"log_level": 0, **properties, "error_cb": on_error}, logger=_SILENCE)
    except KafkaException as error:
        text = error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error)
        raise ClusterError(f"kafka.properties: {text}") from None


def unreachable(servers: str, waited: float, troubles: Iterable[KafkaError] = ()) -> str:
    """The one line for a broker that did not answer, with the reason if librdkafka gave one."""
    last: dict[int, KafkaError] = {trouble.code(): trouble for trouble in troubles}
    for code, trouble in last.items():
        if code in _REFUSED_LOGIN:
            return f"kafka.bootstrap_servers={servers}: the broker refused the login or TLS: {trouble.str()}"
    reason = f" ({last[KafkaError._RESOLVE].str()})" if KafkaError._RESOLVE in last else ""
    return f"kafka.bootstrap_servers={servers}: no broker answered within {waited:g} s{reason}"


def explain(error: KafkaException, what: str) -> str:
    """One line that says what failed, and names a missing permission as such."""
    cause = error.args[0]
    if not isinstance(cause, KafkaError):
        return f"cannot {what}: {error}"
    if cause.code() in _UNAUTHORISED:
        return f"not authorised to {what} ({cause.name()}): ask for the permission (ACL) of this user"
    return f"cannot {what}: {cause.str()} ({cause.name()})"


def patiently(request: Callable[[], _Result], *, seconds: float = ANSWER_SECONDS) -> _Result:
    """The answer to a request that may meet a partition whose leader is only just being chosen."""
    until = time.monotonic() + seconds
    while True:
        try:
            return request()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)


def _altered(topic: str, changes: Iterable[Configure]) -> ConfigResource:
    entries = [ConfigEntry(change.name, change.to, incremental_operation=AlterConfigOpType.SET) for change in changes]
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
