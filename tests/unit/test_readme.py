"""The README tells the truth where a test can tell."""

from pathlib import Path

from gateway.settings_table import renew

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_settings_table_is_that_of_the_settings_classes() -> None:
    assert renew(README) == README, "run .venv/bin/python -m gateway.settings_table"


def test_every_folder_of_the_project_is_explained() -> None:
    for folder in (
        "sketches",
        "controller",
        "protocol",
        "gateway",
        "spark_job",
        "simulator",
        "embedded",
        "command_line",
    ):
        assert f"`{folder}/`" in README


def test_every_reason_for_shedding_is_explained() -> None:
    from controller.batch import SHED_REASONS

    for reason in SHED_REASONS:
        assert f"`{reason.value}`" in README
