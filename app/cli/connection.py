"""How a command finds the service: the same options for every command that speaks to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click
import httpx

from app.client import DEFAULT_URL, Client

P = ParamSpec("P")
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

URL: Final = "FAIRLANE_URL"
KEY: Final = "FAIRLANE_KEY"

url_option = click.option(
    "--url",
    envvar=URL,
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="where the service is",
)


def patience_option(default_sec: float) -> Callable[[Command], Command]:
    """`--patience`, with what is best for the command."""
    return click.option(
        "--patience",
        type=click.FloatRange(min=0.1),
        default=default_sec,
        show_default=True,
        metavar="SECONDS",
        help="how long to go on trying while the service is away",
    )


def connected(
    patience_sec: float = 5.0,
) -> Callable[[Callable[Concatenate[Client, P], T]], Callable[P, T]]:
    """Gives the command a client as its first argument, and options that say where to connect and how patiently."""

    def decorate(command: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
        @url_option
        @patience_option(patience_sec)
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            url, patience = str(kwargs.pop("url")), float(str(kwargs.pop("patience")))
            with open_client(url, patience) as client:
                return command(client, *args, **kwargs)

        return run

    return decorate


def open_client(url: str, patience_sec: float) -> Client:
    """A client of the service at `url`."""
    with usable_url():
        return Client(url, key=key(), deadline_sec=patience_sec)


def key() -> str | None:
    """The key to show to the service. It has no option: arguments can be read by everybody on the machine."""
    return os.environ.get(KEY)


def without_login(url: str) -> str:
    """The address as others may see it: without a user's name and password."""
    return str(httpx.URL(url).copy_with(userinfo=b""))


@contextmanager
def usable_url() -> Iterator[None]:
    """Says that an address is none where a client is made."""
    try:
        yield
    except (ValueError, httpx.InvalidURL) as error:
        raise click.UsageError(f"--url: {error}") from None
