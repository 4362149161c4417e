"""What the commands that run or prepare the service share: its settings as flags, and ends without a traceback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any, TypeVar

import click

from app.cli.printable import printable
from app.errors import FairlaneError
from app.settings import PREFIX, Settings, read_settings

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")


def settings_flags(*names: str) -> Callable[[Command], Command]:
    """A flag for each setting, or for those named; what it means comes from `Settings`."""

    def decorate(command: Command) -> Command:
        for f in reversed(fields(Settings)):
            if names and f.name not in names:
                continue
            command = click.option(
                "--" + f.name.replace("_", "-"),
                f.name,
                metavar="VALUE",
                help=f"{f.metadata['means']}  [{PREFIX}{f.name.upper()}; default: {f.metadata['default']}]",
            )(command)
        return command

    return decorate


def settings_from(flags: dict[str, str | None]) -> Settings:
    """The settings that the flags and the environment say."""
    try:
        return read_settings(os.environ, flags)
    except FairlaneError as error:
        raise click.ClickException(str(error)) from error


def finish(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run to the end; what a person can mend is said in a sentence, without a traceback."""
    # Here, so that the databases' libraries are loaded only for those who need one.
    from app.store.dialect import is_forbidden, is_no_database, is_unavailable

    try:
        return asyncio.run(work)
    except FairlaneError as error:
        raise click.ClickException(printable(str(error), keep="\n")) from error
    except Exception as error:
        if is_unavailable(error):
            raise click.ClickException(printable(f"the database cannot be reached: {_first_line(error)}")) from error
        if is_forbidden(error) or is_no_database(error):
            raise click.ClickException(printable(f"the database cannot be used: {_first_line(error)}")) from error
        raise


def _first_line(error: BaseException) -> str:
    """The driver's own words; SQLAlchemy's wrapping says nothing to a person."""
    original = getattr(error, "orig", None) or error
    return (str(original.__cause__ or original).splitlines() or [type(original).__name__])[0]
