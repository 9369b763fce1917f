"""How a command ends: expected errors in one line on stderr, Ctrl-C quietly, never a traceback."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

P = ParamSpec("P")
R = TypeVar("R")


def ends_in_one_line(command: Callable[P, R]) -> Callable[P, R]:
    """Errors that a user can mend become `spillway: …` and exit code 1."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            if not _is_expected(error):
                raise
            print(f"spillway: {_text(error)}", file=sys.stderr)
            raise typer.Exit(1) from None

    return wrapped


def _is_expected(error: Exception) -> bool:
    """Each room owns its few errors; a room that was never imported cannot have raised."""
    expected = {
        "gateway.errors": ("SettingError", "ClusterError"),
        "embedded.errors": ("EmbeddedError",),
        "spark_job.errors": ("JobError", "SettingError"),
        "confluent_kafka": ("KafkaException",),
    }
    return any(
        module in sys.modules and isinstance(error, getattr(sys.modules[module], name))
        for module, names in expected.items()
        for name in names
    )


def _text(error: Exception) -> str:
    """librdkafka's errors keep their text one level down."""
    for inner in error.args[:1]:
        if hasattr(inner, "str"):
            return f"kafka: {inner.str()}"
    return str(error)
