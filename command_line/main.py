"""The `spillway` command: one entry point, one module per subcommand, rooms imported when needed."""

import typer

from command_line import topics
from command_line.demo import demo
from command_line.job import job
from command_line.kafka import kafka
from command_line.run import run
from command_line.verify import verify

app = typer.Typer(name="spillway", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(demo)
app.command()(run)
app.command()(job)
app.add_typer(topics.app, name="topics")
app.command()(verify)
app.command()(kafka)


@app.callback()
def spillway() -> None:
    """A load-shedding gateway between Kafka and Spark Structured Streaming."""


def main() -> None:
    app()


if __name__ == "__main__":
    main()
