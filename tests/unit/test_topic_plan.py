from typing import Any

import pytest

from gateway.settings import Settings
from gateway.topic_plan import ClusterState, Create, Plan, TopicState, names, plan

DAY = 86_400_000
ANY_AGE = str(2**63 - 1)


def settings(**changes: Any) -> Settings:
    return Settings(**{"pipeline": "p", "topics": [{"raw": "raw", "processing": "in"}], **changes})


def topic(partitions: int = 4, replication: int = 1, **configs: str) -> TopicState:
    defaults = {
        "cleanup.policy": "delete",
        "retention.ms": str(7 * DAY),
        "retention.bytes": "-1",
        "segment.ms": str(7 * DAY),
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": ANY_AGE,
        "message.timestamp.after.max.ms": "3600000",
        "min.insync.replicas": "1",
    }
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicState(partitions=partitions, replication=replication, configs=defaults | given)


def after(done: Plan, before: ClusterState) -> ClusterState:
    """The cluster once the plan is applied, as Kafka would have it."""
    topics = dict(before.topics)
    for new in done.create:
        made = topic(new.partitions)
        topics[new.topic] = TopicState(
            partitions=new.partitions, replication=1, configs={**made.configs, **new.configs}
        )
    for more in done.grow:
        old = topics[more.topic]
        topics[more.topic] = TopicState(partitions=more.to, replication=old.replication, configs=old.configs)
    for change in done.configure:
        old = topics[change.topic]
        topics[change.topic] = TopicState(
            partitions=old.partitions,
            replication=old.replication,
            configs={**old.configs, change.name: change.to},
        )
    return ClusterState(topics=topics)


def applied(wanted: Settings, **topics: TopicState) -> ClusterState:
    found = ClusterState(topics=topics)
    return after(plan(wanted, found), found)


def created(found: Plan, name: str) -> Create:
    return next(new for new in found.create if new.topic == name)


def changed(found: Plan, topic: str) -> dict[str, tuple[str, str]]:
    return {change.name: (change.was, change.to) for change in found.configure if change.topic == topic}


def test_an_applied_plan_leaves_nothing_to_do() -> None:
    cluster = applied(settings(), raw=topic())
    again = plan(settings(), cluster)
    assert again.settled
    assert set(again.ok) == set(names(settings()))


@pytest.mark.parametrize(
    ("name", "partitions", "cleanup", "days"),
    [
        ("p.feedback", 1, "compact,delete", 1 / 24),
        ("p.reports", 1, "compact,delete", 1 / 24),
        ("p.control", 1, "compact", None),
        ("p.audit", 1, "delete", 365),
        ("p.leader", 1, "delete", 7),
        ("p.shed", 12, "delete", 7),
        ("p.parked", 12, "delete", 30),
    ],
)
def test_own_topics_are_created_as_the_architecture_lists_them(
    name: str, partitions: int, cleanup: str, days: float | None
) -> None:
    wanted = settings(topics=[{"raw": "raw", "processing": "in"}, {"raw": "wide", "processing": "wide-in"}])
    new = created(plan(wanted, ClusterState(topics={"raw": topic(4), "wide": topic(12)})), name)
    assert new.partitions == partitions
    assert new.configs["cleanup.policy"] == cleanup
    assert new.configs.get("retention.ms") == (None if days is None else str(round(days * DAY)))
    assert new.why


def test_own_topics_take_the_replication_factor_of_the_settings() -> None:
    found = plan(settings(own_topics={"replication_factor": 3}), ClusterState(topics={"raw": topic()}))
    assert {new.replication for new in found.create if new.topic != "in"} == {3}


def test_a_new_processing_topic_takes_after_its_raw_topic() -> None:
    raw = topic(6, 3, retention_ms=str(3 * DAY), max_message_bytes="5000000", min_insync_replicas="2")
    new = created(plan(settings(), ClusterState(topics={"raw": raw})), "in")
    assert (new.partitions, new.replication) == (6, 3)
    assert new.configs["message.timestamp.type"] == "CreateTime"
    assert new.configs["retention.ms"] == str(3 * DAY)
    assert int(new.configs["max.message.bytes"]) >= 5_000_000
    assert new.configs["min.insync.replicas"] == "2"


def test_a_missing_raw_topic_is_a_problem_and_its_processing_topic_is_not_invented() -> None:
    found = plan(settings(), ClusterState())
    assert [problem.topic for problem in found.problems] == ["raw"]
    assert "in" not in {new.topic for new in found.create}
    assert not found.settled


def test_a_missing_result_topic_is_a_problem() -> None:
    wanted = settings(own_topics={"result": "out"})
    assert [item.topic for item in plan(wanted, applied(wanted, raw=topic())).problems] == ["out"]


def test_a_processing_topic_with_fewer_partitions_than_raw_grows() -> None:
    found = plan(settings(), applied(settings(), raw=topic(8), **{"in": topic(3)}))
    assert found.settled  # applied() grew it
    grow = plan(settings(), ClusterState(topics={"raw": topic(8), "in": topic(3)})).grow
    assert [(item.topic, item.was, item.to) for item in grow] == [("in", 3, 8)]


def test_a_processing_topic_with_more_partitions_than_raw_stays_as_it_is() -> None:
    assert not plan(settings(), ClusterState(topics={"raw": topic(2), "in": topic(5)})).grow


def test_a_single_partition_topic_that_has_more_is_a_problem_for_a_person() -> None:
    cluster = applied(settings(), raw=topic(), **{"p.leader": topic(3)})
    assert [problem.topic for problem in plan(settings(), cluster).problems] == ["p.leader"]


def test_a_processing_topic_that_overwrites_timestamps_is_set_to_create_time() -> None:
    stamped = topic(message_timestamp_type="LogAppendTime")
    found = plan(settings(), ClusterState(topics={"raw": topic(), "in": stamped}))
    assert changed(found, "in")["message.timestamp.type"] == ("LogAppendTime", "CreateTime")


def test_create_time_on_raw_and_result_topics_is_advice_only() -> None:
    wanted = settings(own_topics={"result": "out"})
    found = plan(wanted, applied(wanted, raw=topic(), out=topic()))
    assert found.settled
    assert {item.topic for item in found.advice} >= {"raw", "out"}


def test_append_time_on_raw_and_result_topics_leaves_no_advice() -> None:
    wanted = settings(own_topics={"result": "out"})
    stamped = topic(message_timestamp_type="LogAppendTime")
    assert not plan(wanted, applied(wanted, raw=stamped, out=stamped)).advice


def test_a_shorter_retention_than_raw_is_lengthened() -> None:
    short = topic(retention_ms="3600000")
    found = plan(settings(), ClusterState(topics={"raw": topic(), "in": short}))
    assert changed(found, "in")["retention.ms"] == ("3600000", str(7 * DAY))


@pytest.mark.parametrize("longer", ["-1", str(30 * DAY)])
def test_a_longer_retention_is_never_shortened(longer: str) -> None:
    cluster = applied(settings(), raw=topic())
    kept = {
        name: TopicState(partitions=state.partitions, replication=1, configs={**state.configs, "retention.ms": longer})
        for name, state in cluster.topics.items()
        if name in ("in", "p.feedback", "p.shed", "p.leader")
    }
    found = plan(settings(), ClusterState(topics={**cluster.topics, **kept}))
    assert found.settled


def test_old_timestamps_of_producers_are_warned_about_where_retention_counts_from_them() -> None:
    found = plan(settings(), applied(settings(), raw=topic()))
    assert any(item.topic == "in" and "retention.ms" in item.text for item in found.advice)
    forever = applied(settings(), raw=topic(), **{"in": topic(retention_ms="-1")})
    assert not any(item.topic == "in" for item in plan(settings(), forever).advice)


@pytest.mark.parametrize(
    ("raw_limit", "limit", "becomes"),
    [
        (ANY_AGE, str(DAY), ANY_AGE),
        (str(DAY), str(DAY), str(8 * DAY)),  # a day old on arrival and a week in raw
        (str(DAY), str(9 * DAY), None),
    ],
)
def test_the_processing_topic_accepts_every_age_at_which_a_record_can_be_admitted(
    raw_limit: str, limit: str, becomes: str | None
) -> None:
    name = "message_timestamp_before_max_ms"
    cluster = ClusterState(topics={"raw": topic(**{name: raw_limit}), "in": topic(**{name: limit})})
    change = changed(plan(settings(), cluster), "in").get("message.timestamp.before.max.ms")
    assert change == (None if becomes is None else (limit, becomes))


@pytest.mark.parametrize("name", ["in", "p.shed", "p.parked"])
def test_the_largest_raw_record_fits_with_its_headers_wherever_it_may_go(name: str) -> None:
    cluster = applied(settings(), raw=topic())
    larger = ClusterState(topics={**cluster.topics, "raw": topic(max_message_bytes="9000000")})
    _, size = changed(plan(settings(), larger), name)["max.message.bytes"]
    assert int(size) > 9_000_000


def test_a_compacted_processing_topic_is_a_problem() -> None:
    cluster = applied(settings(), raw=topic(), **{"in": topic(cleanup_policy="compact")})
    assert [problem.topic for problem in plan(settings(), cluster).problems] == ["in"]


def test_the_order_of_cleanup_policies_does_not_matter() -> None:
    cluster = applied(settings(), raw=topic())
    feedback = cluster.topics["p.feedback"]
    swapped = TopicState(partitions=1, replication=1, configs={**feedback.configs, "cleanup.policy": "delete,compact"})
    assert plan(settings(), ClusterState(topics={**cluster.topics, "p.feedback": swapped})).settled


def test_a_configuration_that_the_broker_does_not_know_is_left_out() -> None:
    old = TopicState(partitions=2, replication=1, configs={"retention.ms": "1000", "max.message.bytes": "1000012"})
    found = plan(settings(), ClusterState(topics={"raw": old, "in": old}))
    assert set(changed(found, "in")) == {"max.message.bytes"}
    assert (
        "message.timestamp.before.max.ms"
        not in created(plan(settings(), ClusterState(topics={"raw": old})), "in").configs
    )


def test_fewer_copies_than_wanted_are_advice() -> None:
    cluster = applied(settings(), raw=topic(replication=3), **{"in": topic(replication=1)})
    found = plan(settings(), cluster)
    assert found.settled
    assert any(item.topic == "in" and "replication" in item.text for item in found.advice)


def test_every_change_says_why() -> None:
    found = plan(settings(), ClusterState(topics={"raw": topic(8), "in": topic(3, retention_ms="5")}))
    assert all(change.why for change in (*found.create, *found.grow, *found.configure))
