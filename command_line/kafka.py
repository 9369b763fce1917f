"""`spillway kafka`: the embedded Kafka alone, until Ctrl-C."""

import signal
from pathlib import Path
from typing import Annotated

import typer


def kafka(
    brokers: Annotated[int, typer.Option(help="How many brokers: 1 or 3.", metavar="1|3")] = 1,
    port: Annotated[
        int | None,
        typer.Option(help="The first broker's port; free ones if left out.", min=1, max=65_535, metavar="N"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep the records here and go on with them next time.", file_okay=False, metavar="DIR"),
    ] = None,
) -> None:
    """Run a real Kafka on this machine; only Java is needed."""
    from embedded.broker import KafkaCluster
    from embedded.errors import EmbeddedError

    # SIGTERM as Ctrl-C: both leave the with block, whatever it is doing.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        typer.echo(f"starting {brokers} broker{'s' if brokers > 1 else ''} …", err=True)
        with KafkaCluster.start(brokers=brokers, port=port, data=data) as cluster:
            typer.echo(f"Kafka is up at {cluster.bootstrap_servers}")
            typer.echo(f"  use it:  export SPILLWAY_KAFKA__BOOTSTRAP_SERVERS={cluster.bootstrap_servers}")
            typer.echo(f"  records: {f'kept in {data}' if data else 'gone when it ends (--data DIR keeps them)'}")
            typer.echo("  end it:  Ctrl-C")
            cluster.wait()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
    except EmbeddedError as error:
        typer.echo(f"spillway: {error}", err=True)
        raise typer.Exit(1) from None
