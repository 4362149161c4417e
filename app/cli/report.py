"""`fairlane report`: what the views of docs/reporting.md say, read from the database itself, beside a server or without
one. It imports the store where it needs it, so that nobody else waits for it."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from app.cli.flags import finish, settings_flags, settings_from
from app.cli.report_formats import FORMATS, Format, Portions
from app.cli.terminal import is_terminal

if TYPE_CHECKING:
    from app.store.reports import Report, Wanted

TIMEOUT_SEC: Final = 60.0
ROWS_ON_A_TABLE: Final = 100
DAY: Final = timedelta(days=1)
_AGO: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": DAY, "w": timedelta(weeks=1)}


class Moment(click.ParamType[datetime]):
    """A time as the API writes it, a date, or so long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment, in UTC; what has no zone is UTC."""
        try:
            return _moment(value)
        except (ValueError, OverflowError):
            says = f"{value!r} is no time; write 2026-03-02, 2026-03-02T10:00:00Z, or 24h for so long ago"
            self.fail(says, param, ctx)


def _moment(text: str) -> datetime:
    """Raises `ValueError`, `OverflowError`, also for what no database would take."""
    if found := _AGO.fullmatch(text):
        return datetime.now(UTC) - int(found[1]) * _UNITS[found[2]]
    moment = datetime.fromisoformat(text)
    if moment.year < 1970:
        raise ValueError("before all jobs")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


MOMENT: Final = Moment()


@click.command()
@click.argument("name", required=False)
@click.option("--list", "is_list", is_flag=True, help="say which reports there are")
@click.option("--from", "since", type=MOMENT, help="from this time on: a date, a time, or 24h, 7d ago")
@click.option("--to", "until", type=MOMENT, help="before this time")
@click.option("--tenant", help="of this tenant alone")
@click.option("--limit", type=click.IntRange(1), help=f"most rows; a table has {ROWS_ON_A_TABLE} unless told")
@click.option("--format", "format_name", type=click.Choice(list(FORMATS)), default="table", show_default=True)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="a file, instead of printing")
@click.option(
    "--timeout",
    "timeout_sec",
    type=click.FloatRange(0.001, 86400),
    default=TIMEOUT_SEC,
    show_default=True,
    help="seconds it may take",
)
@settings_flags("database_url")
def report(
    name: str | None,
    since: datetime | None,
    until: datetime | None,
    tenant: str | None,
    limit: int | None,
    format_name: str,
    output: Path | None,
    timeout_sec: float,
    database_url: str | None,
    *,
    is_list: bool,
) -> None:
    """Print a report, the newest rows first.

    It only reads, and it reads the database itself: also while a server runs, and while none does. Without NAME it says
    which reports there are. Those of single jobs and attempts show the last day unless --from says otherwise.
    """
    from app.store.reports import REPORTS, Wanted

    if name is None or is_list:
        for each in REPORTS:
            click.echo(f"{each.name:22}{each.about}")
        return
    found = _find(name, REPORTS)
    _refuse_what_has_no_column(found, since, until, tenant)
    if found.is_single and since is None:
        since = (until or datetime.now(UTC)) - DAY
    form = FORMATS[format_name]
    form.require()
    most = ROWS_ON_A_TABLE if limit is None and form.is_for_people else None
    wanted = Wanted(since, until, tenant, limit if most is None else most + 1)
    url = settings_from({"database_url": database_url}).database_url
    with _to(output, form) as out:
        try:
            finish(_write(url, timeout_sec, found, wanted, form, out, most))
        except _NotWritten as error:
            raise error.ending(output) from None


def _find(name: str, reports: Sequence[Report]) -> Report:
    wanted = name.lower().replace("_", "-").removeprefix("report-")
    for each in reports:
        if each.name == wanted:
            return each
    raise click.UsageError(f"there is no report {name!r}, only {', '.join(each.name for each in reports)}")


def _refuse_what_has_no_column(
    found: Report, since: datetime | None, until: datetime | None, tenant: str | None
) -> None:
    if tenant is not None and "tenant" not in found.columns:
        raise click.UsageError(f"{found.name} is not by tenant")
    if found.time is None and (since or until):
        raise click.UsageError(f"{found.name} is about now, and takes neither --from nor --to")


async def _write(
    url: str, timeout_sec: float, found: Report, wanted: Wanted, form: Format, out: IO[bytes], most: int | None
) -> None:
    from app.store import migrate
    from app.store.dialect import is_forbidden, is_out_of_time
    from app.store.engine import open_reports
    from app.store.reports import read

    engine = open_reports(url, timeout_sec)
    try:
        await migrate.require_usable(engine)
        await _copy(found, _at_most(most, _readable(read(engine, found, wanted))), form, out)
    except Exception as error:
        if is_out_of_time(error):
            asking = "--from, --to and --limit ask for less, --timeout allows more"
            raise click.ClickException(f"it took longer than {timeout_sec:g} s; {asking}") from error
        if is_forbidden(error):
            way = "`fairlane reporting-role` makes one that may, also of new views"
            raise click.ClickException(f"this role may not read reports; {way}") from error
        raise
    finally:
        await engine.dispose()


class _NotRead(Exception):
    """Reading failed; not to be taken for an output that cannot be written."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _NotWritten(Exception):
    """Whoever reads our output has gone, or there is no room for it; not to be taken for a database that is away."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self._reason = reason

    def ending(self, output: Path | None) -> Exception:
        """How the command ends for it."""
        if isinstance(self._reason, BrokenPipeError):
            return self._reason
        return click.ClickException(f"{output or 'the output'} cannot be written: {self._reason.strerror}")


async def _copy(found: Report, portions: Portions, form: Format, out: IO[bytes]) -> None:
    """Raises what reading raises, and `_NotWritten`."""
    try:
        await form.write(found, portions, out)
        out.flush()
    except _NotRead as error:
        raise error.reason from None
    except OSError as error:
        raise _NotWritten(error) from error


async def _readable(portions: Portions) -> Portions:
    try:
        async for rows in portions:
            yield rows
    except Exception as error:
        raise _NotRead(error) from error


async def _at_most(most: int | None, portions: Portions) -> Portions:
    """All rows, or the first ones and a word that there are more."""
    left = most
    async for rows in portions:
        yield rows[:left]
        if left is not None and len(rows) > left:
            click.echo(f"The newest {most} rows; --limit says how many, --from and --to which.", err=True)
        left = left and left - len(rows)


@contextmanager
def _to(output: Path | None, form: Format) -> Iterator[IO[bytes]]:
    """Where the report goes. A file is there as a whole or, if anything fails, as it was."""
    if output is None:
        if form.is_binary and is_terminal():
            raise click.UsageError("this is nothing for a terminal; name a file with --output")
        yield sys.stdout.buffer
        return
    if form.is_for_people:
        raise click.UsageError("a table is printed; --output is for csv, json and parquet")
    try:
        with suppress(FileNotFoundError):
            output.stat()  # links in a circle are an error here; what resolving them is differs between Pythons
        with _written(output.resolve()) as file:
            yield file
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}") from error


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    if target.exists() and not target.is_file():  # a pipe, say, which nothing can take the place of
        with target.open("wb") as file:
            yield file
        return
    from app.store.files import unfinished

    mode = stat.S_IMODE(target.stat().st_mode) | stat.S_IWUSR if target.exists() else 0o666
    with unfinished(target, mode) as part:
        with part.open("wb") as file:
            yield file
        part.replace(target)
