"""`spillway job`: the reference Spark job, with its connector fetched when needed."""

import argparse
from typing import Annotated

import typer

_Pairs = list[str] | None


def job(
    bootstrap_servers: Annotated[str, typer.Option(help="Kafka brokers, host:port,host:port.")],
    pipeline: Annotated[str, typer.Option(help="Feedback goes to <pipeline>.feedback.")],
    topics: Annotated[str, typer.Option(help="Processing topics, separated by commas.")],
    result: Annotated[str, typer.Option(help="Result topic.")],
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[4]",
    work: Annotated[str, typer.Option(help="wait, or spin to use the processor.")] = "wait",
    cost: Annotated[
        _Pairs, typer.Option(metavar="CLASS=SECONDS", help="Per record; class: key up to the first colon.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint location; without it a temporary folder, and no restart.")
    ] = None,
    progress: Annotated[str, typer.Option(help="async or sync: when offsets reach the checkpoint.")] = "async",
    min_partitions: Annotated[
        int | None, typer.Option(help="Split Kafka partitions into at least so many tasks.")
    ] = None,
    max_offsets_per_trigger: Annotated[int | None, typer.Option(help="Largest micro-batch, in records.")] = None,
    slots: Annotated[int | None, typer.Option(help="Tasks that run at once, if Spark does not know.")] = None,
    jars: Annotated[str | None, typer.Option(help="Jars of Spark's Kafka connector; fetched if not given.")] = None,
    conf: Annotated[_Pairs, typer.Option(metavar="K=V", help="Spark setting.")] = None,
    kafka: Annotated[_Pairs, typer.Option(metavar="K=V", help="Java client setting, for source and sink.")] = None,
    feedback_kafka: Annotated[_Pairs, typer.Option(metavar="K=V", help="librdkafka setting, for the feedback.")] = None,
    spark_log: Annotated[
        str | None,
        typer.Option(help="File for Spark's own output; - for the terminal. Else kept only if the job fails."),
    ] = None,
) -> None:
    """Runs the reference Spark job until Ctrl-C or SIGTERM."""
    from embedded.errors import EmbeddedError
    from embedded.jars import SPARK_CONNECTOR, fetch

    try:
        from spark_job.__main__ import run
    except ModuleNotFoundError as error:
        typer.echo(f"spillway: {error.name} is not installed; pip install 'spillway[spark]'", err=True)
        raise typer.Exit(1) from None

    try:
        paths = [*jars.split(",")] if jars else [str(path) for path in fetch(SPARK_CONNECTOR)]
    except EmbeddedError as error:
        typer.echo(f"spillway: {error}", err=True)
        raise typer.Exit(1) from None
    given = argparse.Namespace(
        bootstrap_servers=bootstrap_servers,
        pipeline=pipeline,
        topics=topics,
        result=result,
        master=master,
        work=work,
        cost=cost or [],
        checkpoint=checkpoint,
        progress=progress,
        min_partitions=min_partitions,
        max_offsets_per_trigger=max_offsets_per_trigger,
        slots=slots,
        conf=conf or [],
        kafka=kafka or [],
        feedback_kafka=feedback_kafka or [],
        spark_log=spark_log,
    )
    raise typer.Exit(run(given, jars=paths))
