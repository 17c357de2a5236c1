"""`penstock sql infer`: the CREATE statement of a topic, from a sample of its records."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.option_groups import LogOptions, grouped
from penstock.cli.options import ConfigFile, ConfigPairs, read_config
from penstock.cli.output import console, print_source

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("infer")(infer)


@grouped
def infer(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    *,
    table: Annotated[bool, typer.Option("--table", help="Make a table; its key is the records' key.")] = False,
    name: Annotated[str, typer.Option(help="The name of the stream or table; by default that of the topic.")] = "",
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="How many records to look at.")] = 1000,
    config: ConfigPairs = [],  # noqa: B006 - typer's way
    config_file: ConfigFile = None,
    where: LogOptions,
) -> None:
    """Print a CREATE statement for a topic: format, columns and key by its newest records.

    With `-c schema.registry.url=URL`, schemas of Avro, JSON Schema and Protobuf are looked up there.
    """
    from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
    from penstock.sql.infer import infer_statement, read_sample

    settings = read_config(config, config_file)
    registry = {key: str(value) for key, value in settings.items() if key.startswith(REGISTRY_PREFIXES)}
    with where.open() as log:
        sample = read_sample(log, topic, records)
    statement = infer_statement(sample, "TABLE" if table else "STREAM", name, registry)
    for note in statement.notes:
        console(stderr=True).print(f"Note: {note}", markup=False)
    print_source(statement.text)
