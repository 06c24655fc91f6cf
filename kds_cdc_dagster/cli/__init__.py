"""The command line: `kds-cdc`. Each command is a screen; heavy parts load when a command needs them."""

from __future__ import annotations

import importlib

import click

from kds_cdc_dagster.errors import KdsCdcError

_COMMANDS = {
    "enqueue": "kds_cdc_dagster.cli.enqueue",
    "simulate": "kds_cdc_dagster.cli.simulate",
    "run": "kds_cdc_dagster.cli.run",
    "worker": "kds_cdc_dagster.cli.worker",
    "status": "kds_cdc_dagster.cli.status",
    "doctor": "kds_cdc_dagster.cli.doctor",
    "dead-letters": "kds_cdc_dagster.cli.dead_letters",
    "streams": "kds_cdc_dagster.cli.streams",
    "park": "kds_cdc_dagster.cli.streams",
    "release": "kds_cdc_dagster.cli.streams",
    "open-epoch": "kds_cdc_dagster.cli.streams",
    "rebuild-state": "kds_cdc_dagster.cli.state",
    "audit": "kds_cdc_dagster.cli.state",
    "checks": "kds_cdc_dagster.cli.checks",
    "demo": "kds_cdc_dagster.cli.demo",
    "dev": "kds_cdc_dagster.cli.dev",
}


class _LazyGroup(click.Group):
    """Loads a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All commands, in the order of a newcomer's need."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, or None if there is none of that name."""
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        found: click.Command = getattr(importlib.import_module(module), cmd_name.replace("-", "_"))
        return found

    def invoke(self, ctx: click.Context) -> object:
        """Errors of ours are for people: text and exit code 1, no traceback."""
        try:
            return super().invoke(ctx)
        except KdsCdcError as error:
            raise click.ClickException(f"{type(error).__name__}: {error}") from error


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kds_cdc_dagster")
def main() -> None:
    """Kitchen display change events: from a FIFO queue to curated tables, in order and once.

    Everything is configured by KDS_CDC_* environment variables (README, Configuration). Without any, the
    embedded profile runs: a local queue, store and warehouse under KDS_CDC_HOME; nothing to start.

    Try it: kds-cdc demo
    """
