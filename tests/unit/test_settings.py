"""The settings tree: what is not known or not possible stops the start, with the setting's own name."""

from pathlib import Path

import pytest

from gateway.errors import SettingError
from gateway.settings import Settings

ROUTE = "topics: [{raw: in, processing: out}]\n"


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    return Settings.load(path)


def test_a_route_is_all_that_must_be_given(tmp_path: Path) -> None:
    settings = load(tmp_path, ROUTE)
    assert settings.controller.target_seconds == 2.0
    assert settings.controller.actuator == "guarded"
    assert settings.shed.keep == "none"


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("", "topics"),
        ("{", "--config"),
        ("- a", "--config"),
        (ROUTE + "controler: {}", "controler"),
        (ROUTE + "controller: {targt: 1}", "controller.targt"),
        (ROUTE + "controller: {target_seconds: 0}", "controller.target_seconds"),
        (ROUTE + "controller: {target_seconds: .nan}", "controller.target_seconds"),
        (ROUTE + "controller: {load_manager: fast}", "controller.load_manager"),
        (ROUTE + "key: {source: header}", "key"),
        (ROUTE + "key: {source: json}", "key"),
        ("topics: [{raw: a, procesing: b}]", "topics.0.processing"),
        ("topics: [{raw: a, processing: a}]", "topics"),
        ("topics: [{raw: a, processing: b}, {raw: a, processing: c}]", "topics"),
        ("topics: [{raw: a, processing: c}, {raw: b, processing: c}]", "topics"),
        (ROUTE + "pipeline: 'a b'", "pipeline"),
    ],
)
def test_a_mistake_is_named_as_the_operator_typed_it(tmp_path: Path, text: str, setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(tmp_path, text)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot read"):
        Settings.load(tmp_path / "none.yaml")


def test_the_environment_outranks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_CONTROLLER__TARGET_SECONDS", "5")
    monkeypatch.setenv("SPILLWAY_KAFKA__BOOTSTRAP_SERVERS", "elsewhere:9092")
    settings = load(tmp_path, ROUTE + "controller: {target_seconds: 3, set_point: 0.9}\nkafka: {group_id: g}")
    assert settings.controller.target_seconds == 5.0
    assert settings.controller.set_point == 0.9
    assert settings.kafka.bootstrap_servers == "elsewhere:9092"
    assert settings.kafka.group_id == "g"


@pytest.mark.parametrize("name", ["SPILLWAY_TARGET", "SPILLWAY_CONTROLLER__TARGT"])
def test_a_mistyped_variable_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "5")
    with pytest.raises(SettingError):
        load(tmp_path, ROUTE)


def test_secrets_never_show(tmp_path: Path) -> None:
    text = ROUTE + "kafka: {secrets: {sasl.password: hunter2}, properties: {ssl.key.password: hunter3}}"
    settings = load(tmp_path, text)
    assert "hunter" not in str(settings.masked())
    assert "hunter2" not in repr(settings)
    assert settings.client_properties()["sasl.password"] == "hunter2"


def test_yaml_words_for_switches_are_understood(tmp_path: Path) -> None:
    assert load(tmp_path, ROUTE + "origin: on").origin is True
    assert load(tmp_path, ROUTE + "origin: off").origin is False
