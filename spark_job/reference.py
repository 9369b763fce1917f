"""The reference job: Kafka in, so much work per record, Kafka out, instrumented.

Asynchronous progress tracking, the default, takes the two writes per batch to the checkpoint out of the batch's way.
What it costs is a weaker restart: offsets are on disk at most about once per second, so a restarted query may work
through several of its last batches again, under other batch ids and boundaries, where the synchronous one repeats at
most the batch that ran. Results repeat either way (Spark's Kafka sink is at least once); nothing is lost. Spark refuses
it for stateful queries, for sinks other than Kafka's, and for the triggers once and available-now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from spark_job.errors import JobError, SettingError
from spark_job.instrument import instrument
from spark_job.publish import Feedback
from spark_job.work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What the reference job reads, does and writes."""

    bootstrap_servers: str
    topics: Sequence[str]  # the processing topics
    result: str
    feedback: Feedback
    checkpoint: str
    work: Work = field(default_factory=Work)
    progress: Literal["async", "sync"] = "async"
    min_partitions: int | None = None
    max_offsets_per_trigger: int | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)  # Java client settings, for source and sink

    def __post_init__(self) -> None:
        if not [topic for topic in self.topics if topic.strip()]:
            raise SettingError("--topics", "is empty; it must name at least one topic")
        if self.progress not in ("async", "sync"):
            raise SettingError("--progress", f"is {self.progress!r}; it must be async or sync")
        for setting, number in (
            ("--min-partitions", self.min_partitions),
            ("--max-offsets-per-trigger", self.max_offsets_per_trigger),
        ):
            if number is not None and number < 1:
                raise SettingError(setting, f"is {number}; it must be at least 1")


def reference(records: "DataFrame", *, work: Work, feedback: Feedback) -> "DataFrame":
    """The job itself: a result for each record."""
    return instrument(records, work, feedback=feedback)


def source(spark: "SparkSession", settings: JobSettings) -> "DataFrame":
    options: dict[str, str] = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "subscribe": ",".join(settings.topics),
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_committed",  # what a gateway aborted must not be worked on
        **_prefixed(settings.kafka),
    }
    if settings.min_partitions is not None:
        options["minPartitions"] = str(settings.min_partitions)
    if settings.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return spark.readStream.format("kafka").options(**options).load()


def start(spark: "SparkSession", settings: JobSettings) -> "StreamingQuery":
    """The running query."""
    results = reference(source(spark, settings), work=settings.work, feedback=settings.feedback)
    writer = (
        results.writeStream.format("kafka")
        .queryName("spillway-reference")
        .options(
            **{
                "kafka.bootstrap.servers": settings.bootstrap_servers,
                "topic": settings.result,
                "checkpointLocation": settings.checkpoint,
                "kafka.linger.ms": "10",
                **_prefixed(settings.kafka),
            }
        )
    )
    if settings.progress == "async":
        writer = writer.option("asyncProgressTrackingEnabled", "true")
    return writer.start()


def check(settings: JobSettings, *, librdkafka: Mapping[str, str]) -> list[str]:
    """Raises JobError unless broker and topics are there; returns warnings."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from protocol.topics import Topics

    try:
        admin = AdminClient({**librdkafka, "bootstrap.servers": settings.bootstrap_servers, "log_level": 0})
        present = admin.list_topics(timeout=_ANSWER_S).topics
    except KafkaException as error:
        text = error.args[0].str() if error.args else str(error)
        raise JobError(f"no Kafka broker answers at {settings.bootstrap_servers} ({text})") from None
    missing = [topic for topic in (*settings.topics, settings.result) if topic not in present]
    if missing:
        raise JobError(f"topic {', '.join(missing)} does not exist at {settings.bootstrap_servers}")
    feedback = Topics(settings.feedback.pipeline).feedback
    if feedback not in present:
        return [f"topic {feedback} does not exist: the job runs, but no gateway hears of it"]
    return []


def _prefixed(kafka: Mapping[str, str]) -> dict[str, Any]:
    return {name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in kafka.items()}
