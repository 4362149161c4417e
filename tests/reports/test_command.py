"""`fairlane report`: each format, each choice of rows, what is refused, beside a server and without one."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.cli import main
from app.cli.exits import Exit
from app.store.engine import open_reports
from app.store.reports import REPORTS
from tests.cli.running import PROGRAM
from tests.databases import Database, Databases
from tests.reports.history import write
from tests.reports.looking import VIEWS
from tests.reports.sample import DAY, STORIES, WEIGHTS
from tests.served import serving

MORNING = ("--from", f"{DAY}T08:00:00Z", "--to", f"{DAY}T11:00:00Z")
TIMED = [report for report in REPORTS if report.time is not None]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def sample(both: tuple[Database, Database], request: pytest.FixtureRequest) -> Database:
    """The sample on each engine."""
    return both[0] if request.param == "sqlite" else both[1]


def fairlane(database: Database | str, *arguments: str, code: int = 0) -> Result:
    url = database if isinstance(database, str) else database.url
    result = CliRunner().invoke(main, ["report", *arguments], env={"FAIRLANE_DATABASE_URL": url}, prog_name="fairlane")
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def test_the_reports_are_the_views() -> None:
    assert [report.view for report in REPORTS] == [
        *("report_job_waits", "report_attempts", "report_tenants_by_hour", "report_throughput_by_minute"),
        *("report_fairness_by_hour", "report_queue_depth", "report_failures_by_suite", "report_workers"),
    ]
    assert {report.view for report in REPORTS} == set(VIEWS)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
async def test_the_columns_are_those_of_the_view(both: tuple[Database, Database], report: Any) -> None:
    columns = await both[0].fetch(f"PRAGMA table_info({report.view})")
    assert list(report.columns) == [column[1] for column in columns]


@pytest.mark.parametrize("arguments", [(), ("--list",)])
def test_without_a_name_it_says_which_there_are(both: tuple[Database, Database], arguments: tuple[str, ...]) -> None:
    lines = fairlane(both[0], *arguments).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [report.name for report in REPORTS]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_every_format_says_the_same_on_both_engines(
    both: tuple[Database, Database], report: Any, tmp_path: Path
) -> None:
    chosen = MORNING if report.time else ()
    for form in ("table", "csv", "json"):
        on_sqlite, on_postgres = (fairlane(each, report.name, *chosen, "--format", form).stdout for each in both)
        assert on_sqlite == on_postgres
    objects = [json.loads(line) for line in on_sqlite.splitlines()]
    assert objects
    assert all(list(each) == list(report.columns) for each in objects)

    rows = list(csv.DictReader(io.StringIO(fairlane(both[0], report.name, *chosen, "--format", "csv").stdout)))
    assert [{name: "" if value is None else str(value) for name, value in each.items()} for each in objects] == rows

    tables = []
    for number, each in enumerate(both):
        file = tmp_path / f"{number}.parquet"
        fairlane(each, report.name, *chosen, "--format", "parquet", "--output", str(file))
        tables.append(parquet.read_table(file))
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows == len(objects)
    moments = [name for name in report.columns if name.endswith("_at") or name in ("hour", "minute")]
    assert {tables[0].schema.field(name).type for name in moments} == {pa.timestamp("us", tz="UTC")}


def test_rows_are_chosen_by_time_and_tenant(sample: Database) -> None:
    def hours(*arguments: str) -> list[str]:
        lines = fairlane(sample, "tenants-by-hour", "--format", "csv", *arguments).stdout.splitlines()[1:]
        return [line[11:13] + line.split(",")[1] for line in lines]

    assert hours(*MORNING) == ["10data", "10platform", "10web", "09data", "09platform", "09web", "08platform", "08web"]
    assert hours("--from", f"{DAY}T09:00", "--to", f"{DAY}T12:00:00+02:00") == ["09data", "09platform", "09web"]
    assert hours(*MORNING, "--tenant", "web") == ["10web", "09web", "08web"]
    assert hours(*MORNING, "--limit", "1") == ["10data"]
    assert hours("--tenant", "nobody") == []
    assert hours("--from", "24h") == []


def test_single_jobs_are_those_of_the_last_day_unless_told(sample: Database) -> None:
    since = datetime.fromisoformat(f"{DAY}T09:00:00+00:00")
    until = since + timedelta(days=1)
    for name, time in (("job-waits", "submitted_at"), ("attempts", "scheduled_at")):

        def times(*arguments: str, name: str = name, time: str = time) -> list[datetime]:
            rows = fairlane(sample, name, "--format", "json", *arguments).stdout.splitlines()
            return [datetime.fromisoformat(json.loads(row)[time]) for row in rows]

        assert times() == []
        last_day = times("--to", until.isoformat())
        assert last_day
        assert all(since <= each < until for each in last_day)
        assert len(times("--from", DAY, "--to", until.isoformat())) > len(last_day)


def test_a_table_has_a_hundred_rows_unless_told(sample: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["app.cli.report"], "ROWS_ON_A_TABLE", 2)
    monkeypatch.setattr("app.store.reports.ROWS_AT_ONCE", 1)

    cut = fairlane(sample, "tenants-by-hour", *MORNING)
    assert len(cut.stdout.splitlines()) == 3
    assert cut.stderr == "The newest 2 rows; --limit says how many, --from and --to which.\n"

    assert len(fairlane(sample, "tenants-by-hour", *MORNING, "--limit", "5").stdout.splitlines()) == 6
    assert len(fairlane(sample, "tenants-by-hour", *MORNING, "--format", "csv").stdout.splitlines()) == 9


def test_what_cannot_be_is_refused_in_a_sentence(sample: Database, tmp_path: Path) -> None:
    assert "there is no report 'cake', only job-waits," in fairlane(sample, "cake", code=2).stderr
    assert "workers is not by tenant" in fairlane(sample, "workers", "--tenant", "web", code=2).stderr
    assert "takes neither --from nor --to" in fairlane(sample, "queue-depth", "--to", "1h", code=2).stderr
    for time in (
        "never",
        "2026-13-01",
        "9999999d",
        "999999w",
        "9999-12-31T23:59:59-12:00",
        "",
        "1969-12-31",
        "0001-01-01T00:00:00+23:59",
    ):
        assert "is no time" in fairlane(sample, "workers", "--from", time, code=2).stderr
    assert "a table is printed" in fairlane(sample, "workers", "-o", str(tmp_path / "x"), code=2).stderr
    no_folder = str(tmp_path / "none" / "x.csv")
    assert "cannot be written" in fairlane(sample, "workers", "--format", "csv", "-o", no_folder, code=1).stderr


def test_names_of_views_are_names_too(sample: Database) -> None:
    assert fairlane(sample, "report_queue_depth").stdout == fairlane(sample, "queue-depth").stdout


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


@asynccontextmanager
async def jobs_are_locked(database: Database) -> AsyncIterator[None]:
    """Whoever reads them waits, on Postgres. On SQLite readers wait for nobody."""
    if database.kind == "sqlite":
        yield
        return
    connection = await asyncpg.connect(database.url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def test_a_report_that_takes_too_long_is_ended(
    sample: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.dialect._STEPS_BETWEEN_LOOKS", 1)
    timeout = "0.001" if sample.kind == "sqlite" else "0.5"
    file = tmp_path / "x.csv"
    file.write_text("as it was")
    asked = ("job-waits", "--timeout", timeout, "--from", DAY, "--format", "csv", "-o", str(file))
    async with jobs_are_locked(sample):
        ended = await asyncio.to_thread(fairlane, sample, *asked, code=1)

    assert f"it took longer than {timeout} s; --from, --to and --limit ask for less" in ended.stderr
    assert file.read_text() == "as it was"
    assert names_in(tmp_path) == [file.name]


def test_parquet_says_what_it_needs(sample: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    sentence = "Parquet needs pyarrow, which is not installed; pip install 'fairlane[parquet]' brings it"
    assert sentence in fairlane(sample, "workers", "--format", "parquet", "-o", "x", code=1).stderr


def test_an_empty_report_has_its_columns(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    fairlane(database, "workers", "--format", "parquet", "-o", str(file))
    assert fairlane(database, "workers", "--format", "csv").stdout.startswith("hour,worker,")
    assert fairlane(database, "workers", "--format", "json").stdout == ""
    assert fairlane(database, "workers").stdout.startswith("HOUR  WORKER")
    assert parquet.read_table(file).schema.names[:2] == ["hour", "worker"]


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    ended = fairlane(f"sqlite:///{tmp_path}/none.db", "workers", code=1)
    assert f"names the file {tmp_path}/none.db, which does not exist" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_away_is_not_taken_for_the_output(unused_port: int) -> None:
    url = f"postgresql://somebody@127.0.0.1:{unused_port}/fairlane"
    assert "the database cannot be reached: " in fairlane(url, "workers", "--format", "csv", code=1).stderr


def test_an_old_schema_is_said(empty_database: Database) -> None:
    if empty_database.kind == "sqlite":
        Path(empty_database.url.removeprefix("sqlite:///")).touch()
    assert "run `fairlane migrate up`" in fairlane(empty_database, "workers", code=1).stderr


def test_a_file_of_any_name_is_read(sqlite_databases: Databases, tmp_path: Path) -> None:
    made = sqlite_databases.create()
    path = tmp_path / "a #1 100% file.db"
    shutil.copyfile(made.url.removeprefix("sqlite:///"), path)
    sqlite_databases.drop(made)

    assert fairlane(f"sqlite:///{path}", "workers").stdout


def test_who_reads_only_the_beginning_ends_it_quietly(sample: Database) -> None:
    script = f"{shlex.join(PROGRAM)} report job-waits --from {DAY} --format csv | head -1; exit ${{PIPESTATUS[0]}}"
    environ = {**os.environ, "FAIRLANE_DATABASE_URL": sample.url}
    ended = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)

    assert ended.stdout.startswith("job_id,seq,")
    assert ended.stderr == ""
    assert ended.returncode in (Exit.OK, Exit.NOBODY_READS)


def test_a_disk_without_room_is_not_taken_for_the_database(sample: Database) -> None:
    full = Path("/dev/full")  # its name beside it would be a file of its own: so as the standard output
    with full.open("wb") as out:
        ended = subprocess.run(
            [*PROGRAM, "report", "workers", "--format", "json"],
            env={**os.environ, "FAIRLANE_DATABASE_URL": sample.url},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "Error: the output cannot be written: No space left on device\n"


async def test_it_reads_beside_a_server_and_cannot_write(database: Database) -> None:
    await write(database, DAY, WEIGHTS, STORIES[:5])
    async with serving(database.url) as served, served.client() as client:
        (await client.post("/jobs", json={"tenant": "new", "test_suite": "s"})).raise_for_status()
        printed = (await asyncio.to_thread(fairlane, database, "queue-depth", "--format", "csv")).stdout
        assert "\ndefault,new,0,1,0,0," in printed
        engine = open_reports(database.url, 10)
        with pytest.raises(DBAPIError, match=r"readonly|read-only"):
            async with engine.begin() as connection:
                await connection.execute(text("DELETE FROM jobs"))
        await engine.dispose()


def test_a_file_takes_the_place_of_nothing_but_itself(sample: Database, tmp_path: Path) -> None:
    chosen = ("workers", *MORNING, "--format", "csv")
    printed = fairlane(sample, *chosen).stdout
    kept, somebodys, link = tmp_path / "kept.csv", tmp_path / "kept.csv.part", tmp_path / "link.csv"
    for file in (kept, somebodys):
        file.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)

    fairlane(sample, *chosen, "--output", str(link))

    assert kept.read_text() == printed
    assert (stat.S_IMODE(kept.stat().st_mode), link.is_symlink(), somebodys.read_text()) == (0o640, True, "old")
    assert sorted(tmp_path.iterdir()) == [kept, somebodys, link]


def test_a_pipe_is_written_to(sample: Database, tmp_path: Path) -> None:
    pipe, chosen = tmp_path / "pipe", ("workers", *MORNING, "--format", "csv")
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as beside:
        reading = beside.submit(pipe.read_text)
        fairlane(sample, *chosen, "--output", str(pipe))
        assert reading.result() == fairlane(sample, *chosen).stdout
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["x" * 253, "x" * 300, "there/is/no/folder.csv", "circle"])
def test_a_file_that_cannot_be_is_said(sample: Database, tmp_path: Path, name: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    path = tmp_path / name
    can_be = name == "x" * 253
    said = fairlane(sample, "workers", "--format", "csv", "--output", str(path), code=0 if can_be else 1)
    assert [each for each in tmp_path.iterdir() if not each.is_symlink()] == ([path] if can_be else [])
    assert can_be or f"{path} cannot be written: " in said.stderr
