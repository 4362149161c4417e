"""`fairlane top`: looks, draws, waits for a key."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from app.cli.connection import key, url_option, usable_url, without_login
from app.cli.tables import print_table
from app.cli.terminal import is_terminal
from app.cli.top_look import Snapshot, look
from app.cli.top_view import counts_line, sections, view
from app.client import AsyncClient, FairlaneError

_PATIENCE_SEC: Final = 5.0
_QUIT: Final = frozenset(b"qQ\x03\x04")


@click.command()
@click.option(
    "--interval",
    "interval_sec",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="how often to look",
)
@url_option
def top(*, interval_sec: float, url: str) -> None:
    """Watch queues, tenants' shares, workers and the newest jobs.

    q ends it. SHARE is what a tenant's weight promises it beside the other tenants that have jobs now, NOW is what it
    has of the jobs in workers' hands. Without a terminal everything is printed once.
    """
    with usable_url():
        client = AsyncClient(url, key=key(), deadline_sec=_PATIENCE_SEC).without_retries()
    asyncio.run(_watch(client, without_login(url), interval_sec) if is_terminal() else _print_once(client))


async def _print_once(client: AsyncClient) -> None:
    async with client:
        snapshot = await look(client)
    click.echo(counts_line(snapshot))
    for section in sections(snapshot):
        click.echo()
        print_table(section.columns, section.rows)


async def _watch(client: AsyncClient, url: str, interval_sec: float) -> None:
    told_to_end = asyncio.Event()
    console = Console(highlight=False)
    with _keys(told_to_end.set), Live(console=console, screen=True, auto_refresh=False) as live:
        async with client:
            watching = asyncio.create_task(_Watch(client, url, live).run(interval_sec))
            ending = asyncio.create_task(told_to_end.wait())
            await asyncio.wait({watching, ending}, return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, ending):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await watching


class _Watch:
    """Draws what it has seen last, and says so if it cannot see any more."""

    def __init__(self, client: AsyncClient, url: str, live: Live) -> None:
        self._client = client
        self._url = url
        self._live = live
        self._seen: Snapshot | None = None
        self._trouble: str | None = None

    async def run(self, interval_sec: float) -> None:
        """Look and draw, for ever."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._draw)
        self._draw()
        while True:
            try:
                self._seen, self._trouble = await look(self._client), None
            except FairlaneError as error:
                self._trouble = str(error)
            self._draw()
            await asyncio.sleep(interval_sec)

    def _draw(self) -> None:
        size = self._live.console.size
        self._live.update(view(self._seen, self._url, self._trouble, size.width, size.height), refresh=True)


@contextmanager
def _keys(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` at q, Ctrl-C or SIGTERM; the terminal is as it was afterwards."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed() -> None:
        if _QUIT & set(os.read(keyboard, 64)):
            end()

    try:
        tty.setcbreak(keyboard)
        loop.add_reader(keyboard, pressed)
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
