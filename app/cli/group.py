"""The command that holds the others: its help is in sections, and errors of the client end it with an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from app.cli.exits import MEANINGS, Exit, stopped
from app.client import FairlaneError
from app.keys import without_secrets
from app.settings import without_password


class Program(click.Group):
    """A group of commands in sections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections: dict[str, Sequence[click.Command]] = {}

    def fill(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Take the commands, in the order in which the help shows them."""
        self._sections = dict(sections)
        for commands in sections.values():
            for command in commands:
                self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """The names, in the order of the help."""
        return [command.name or "" for commands in self._sections.values() for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The sections, and then what the exit codes mean."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(command.name or "", command.get_short_help_str(80)) for command in commands])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), meaning) for code, meaning in MEANINGS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        # A name that the terminal's encoding cannot say is shown escaped, and is no reason to fail.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except FairlaneError as error:
            raise stopped(error) from error
        except click.UsageError as error:
            # It repeats what is out of place. Each kind of it puts other words around them, when it is shown.
            error.message = without_secrets(without_password(error.message))  # type: ignore[misc] # but for this
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            _write_no_more()
            ctx.exit(Exit.NOBODY_READS)


def _write_no_more() -> None:
    """Whoever read our output has gone; what is still buffered must not be written at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
