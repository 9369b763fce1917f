"""Everything an operator can set: one tree, from a YAML file overridden by SPILLWAY_… variables."""

import os
import socket
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml  # type: ignore[import-untyped]
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.errors import SettingError

_SECRET_WORDS = ("password", "secret", "token", "key.pem", "keystore", "jaas")


class Group(BaseModel):
    """A level of the settings tree: unknown keys are refused, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(Group):
    bootstrap_servers: str = Field("127.0.0.1:9092", min_length=1, description="Kafka brokers, host:port,…")
    properties: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="passed as they are to librdkafka: TLS, SASL, time-outs"
    )
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="librdkafka properties that must never be printed (sasl.password, …)",
    )
    group_id: str | None = Field(None, description="consumer group; default: the pipeline's name")
    static_member: str | None = Field(None, description="group.instance.id, for restarts without a rebalance")
    session_timeout_seconds: float = Field(6.0, gt=0, description="a dead replica is noticed after this")


class Route(Group):
    raw: str = Field(min_length=1, description="topic that producers write to")
    processing: str = Field(min_length=1, description="topic that the Spark job reads")


class KeySettings(Group):
    source: Literal["record", "header", "json"] = Field(
        "record", description="where the shedding key is: the record key, a header, a JSON path in the value"
    )
    name: str | None = Field(None, description="the header's name, for source: header")
    path: str | None = Field(None, description="dotted JSON path such as user.id, for source: json")
    unreadable: Literal["park", "missing"] = Field(
        "park", description="a value that is not JSON under source: json is parked, or counts as without a key"
    )

    @model_validator(mode="after")
    def _complete(self) -> "KeySettings":
        if self.source == "header" and not self.name:
            raise ValueError("source: header needs name, the header that holds the key")
        if self.source == "json" and not self.path:
            raise ValueError("source: json needs path, for example user.id")
        return self


class ControllerSettings(Group):
    target_seconds: float = Field(2.0, gt=0, description="upper bound for the response time of a record")
    set_point: float = Field(0.8, gt=0, le=1, description="share of the target that regulating laws aim at")
    period_seconds: float = Field(0.5, gt=0, le=60, description="control period")
    load_manager: Literal["ctrl", "none"] = Field("ctrl", description="the law that says when and how much to shed")
    shedder: Literal["random"] = Field("random", description="the law that says what to shed")
    actuator: Literal["guarded", "exact", "coin"] = Field("guarded", description="how the budget is spent")
    poles: tuple[float, float] = Field((0.7, 0.7), description="closed-loop poles of CTRL")
    gain_a: float = Field(-0.8, description="the free gain of CTRL")
    headroom: Literal["auto"] | Annotated[float, Field(gt=0)] = Field(
        "auto", description="engine-seconds of work per second; auto measures it"
    )
    initial_records: int = Field(500, ge=1, description="records admitted before the first feedback")
    trickle_per_second: float = Field(
        1.0, ge=0, description="records per second and partition admitted whatever the budget says"
    )


class FeedbackSettings(Group):
    hold_seconds: float = Field(10.0, gt=0, description="without feedback, hold the last budget this long")
    degrade: Literal["open", "closed", "aurora"] = Field(
        "closed", description="then: admit all, a trickle, or the last known capacity"
    )


class ShedSettings(Group):
    keep: Literal["none", "all"] = Field("none", description="write shed records to the shed topic")


class ArrivalSettings(Group):
    oldest_seconds: float = Field(
        3600.0, gt=0, description="with CreateTime: an older timestamp is not believed, the poll time counts"
    )
    future_seconds: float = Field(
        1.0, ge=0, description="with CreateTime: a timestamp further ahead than this is not believed"
    )


class LoopSettings(Group):
    poll_records: int = Field(5_000, ge=1, le=100_000, description="records taken per poll")
    poll_wait_seconds: float = Field(0.02, gt=0, le=1, description="how long a poll waits for records")
    in_flight_records: int = Field(100_000, ge=1, description="undelivered records at which polling pauses")
    in_flight_bytes: int = Field(256_000_000, ge=1_000_000, description="undelivered bytes at which polling pauses")
    commit_seconds: float = Field(1.0, gt=0, description="offsets are committed this often")
    drain_seconds: float = Field(20.0, gt=0, description="SIGTERM: time to deliver what is in flight")


class TopicSettings(Group):
    replication_factor: int = Field(-1, ge=-1, description="of Spillway's own topics; -1: the broker's default")
    result: str | None = Field(None, description="the job's result topic, for topics check and verify")


class Settings(BaseSettings):
    """``Settings.load(path)`` reads the file, then the environment; both refuse what they do not know."""

    model_config = SettingsConfigDict(env_prefix="SPILLWAY_", env_nested_delimiter="__", extra="forbid", frozen=True)

    pipeline: str = Field("spillway", pattern=r"^[A-Za-z0-9._-]{1,200}$", description="prefix of its own topics")
    replica: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}",
        description="name of this process",
    )
    topics: tuple[Route, ...] = Field(min_length=1, description="raw topics and where their records go")
    origin: bool = Field(False, description="stamp admitted records with spillway.origin, for the verifier")
    kafka: KafkaSettings = KafkaSettings()
    key: KeySettings = KeySettings()
    controller: ControllerSettings = ControllerSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    shed: ShedSettings = ShedSettings()
    arrival: ArrivalSettings = ArrivalSettings()
    loop: LoopSettings = LoopSettings()
    own_topics: TopicSettings = TopicSettings()

    @field_validator("topics")
    @classmethod
    def _distinct(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        raw = [route.raw for route in routes]
        if len(set(raw)) < len(raw):
            raise ValueError("a raw topic is named twice")
        if set(raw) & {route.processing for route in routes}:
            raise ValueError("a topic is both raw and processing: records would go in circles")
        processing = [route.processing for route in routes]
        if len(set(processing)) < len(processing):
            raise ValueError("two raw topics share a processing topic: give each its own")
        return routes

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings  # the environment outranks the file

    @classmethod
    def load(cls, path: Path | None = None) -> "Settings":
        """The settings of ``path`` and the environment; raises SettingError with one clear line."""
        values = _read_yaml(path) if path else {}
        _refuse_unknown_variables(cls)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            setting = ".".join(str(part) for part in first["loc"]) or "settings"
            if first["type"] == "extra_forbidden":
                raise SettingError(setting, f"there is no such setting{_near(cls, first['loc'])}") from None
            if first["type"] == "missing":
                raise SettingError(setting, "is missing") from None
            raise SettingError(setting, first["msg"].removeprefix("Value error, ")) from None
        except ValueError as error:  # pydantic-settings: an environment value that is no JSON
            raise SettingError("environment", str(error)) from None

    def masked(self) -> dict[str, Any]:
        """The tree as plain values with every secret hidden."""
        tree: dict[str, Any] = self.model_dump(mode="json")
        for name in tree["kafka"]["properties"]:
            if any(word in name for word in _SECRET_WORDS):
                tree["kafka"]["properties"][name] = "**********"
        return tree

    def client_properties(self) -> dict[str, Any]:
        """What every Kafka client of this process is configured with."""
        secrets = {name: value.get_secret_value() for name, value in self.kafka.secrets.items()}
        return {"bootstrap.servers": self.kafka.bootstrap_servers, **self.kafka.properties, **secrets}


# Variables of this prefix that are not settings of the gateway.
_OTHER_VARIABLES = {"SPILLWAY_CACHE", "SPILLWAY_CONFIG", "SPILLWAY_TEST_BROKERS"}


def _refuse_unknown_variables(model: type[BaseModel]) -> None:
    """pydantic-settings passes over unknown top-level variables; a typing mistake must not."""
    for name in os.environ:
        if name.startswith("SPILLWAY_") and name not in _OTHER_VARIABLES:
            first = name.removeprefix("SPILLWAY_").lower().split("__")[0]
            if first not in model.model_fields:
                raise SettingError(name, "there is no such setting; known: " + ", ".join(sorted(model.model_fields)))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError("--config", f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = f" at line {mark.line + 1}" if (mark := getattr(error, "problem_mark", None)) else ""
        problem = getattr(error, "problem", None) or "not text"
        raise SettingError("--config", f"{path} is not YAML{line}: {problem}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingError("--config", f"{path} must hold settings as name: value, not a {type(tree).__name__}")
    return {str(name): value for name, value in tree.items()}


def _near(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """What the level of an unknown setting does know."""
    level: Any = model
    for part in location[:-1]:
        if isinstance(part, int):
            level = Route
            continue
        field = level.model_fields.get(part)
        annotation = getattr(field, "annotation", None)
        level = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else level
    return "; known here: " + ", ".join(sorted(level.model_fields))
