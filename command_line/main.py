"""The `spillway` command: one entry point, one module per subcommand, rooms imported when needed."""

import typer

from command_line import topics
from command_line.kafka import kafka
from command_line.run import run

app = typer.Typer(name="spillway", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(run)
app.add_typer(topics.app, name="topics")
app.command()(kafka)


@app.callback()
def spillway() -> None:
    """A load-shedding gateway between Kafka and Spark Structured Streaming."""


def main() -> None:
    app()
