"""A snapshot is the database at one moment, whole or not there, and replaces nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import BadSettings
from app.scheduling.job import State
from app.store import snapshot
from app.store.engine import open_engines
from app.store.schema import tenants
from app.store.snapshot import NoSnapshot, make
from tests.databases import Sqlite
from tests.store.rows import add_job, add_tenant


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_it_has_what_was_committed_while_others_write(sqlite: Sqlite, tmp_path: Path) -> None:
    await add_tenant(sqlite, "globex")
    seqs = [await add_job(sqlite, state) for state in State]
    target = tmp_path / "a copy?#%'é.db"

    async with open_engines(sqlite.url) as engines, engines.writer.begin() as connection:
        await connection.execute(tenants.insert().values(name="not yet"))
        made = make(sqlite.url, target)

    assert (made.jobs, made.attempts, made.tenants) == (len(seqs), 0, 2)
    assert made.size == target.stat().st_size
    assert [seq for (seq,) in rows(target, "SELECT seq FROM jobs ORDER BY seq")] == seqs
    assert rows(target, "SELECT name FROM tenants ORDER BY name") == [("acme",), ("globex",)]
    assert rows(target, "PRAGMA integrity_check") == [("ok",)]
    assert names_in(tmp_path) == [target.name]


@pytest.mark.parametrize("there", ["a file", "an empty file", "a link to nothing", "the database itself"])
def test_what_is_there_stays(sqlite: Sqlite, tmp_path: Path, there: str) -> None:
    target = tmp_path / "there"
    match there:
        case "a file":
            target.write_text("a letter")
        case "an empty file":
            target.touch()
        case "a link to nothing":
            target.symlink_to(tmp_path / "nothing")
        case _:
            target = sqlite.path

    with pytest.raises(NoSnapshot, match="is there already, and a snapshot overwrites nothing"):
        make(sqlite.url, target)

    assert there != "a file" or target.read_text() == "a letter"
    assert there != "a link to nothing" or not target.exists()
    assert len(names_in(tmp_path)) == (there != "the database itself")


@pytest.mark.parametrize("has_links", [True, False])
def test_what_comes_meanwhile_stays(
    sqlite: Sqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    target, copy = tmp_path / "there", snapshot._copy

    def copy_and_be_late(source: Path, to: Path) -> None:
        copy(source, to)
        target.write_text("a letter")

    monkeypatch.setattr(snapshot, "_copy", copy_and_be_late)
    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", _no_links)

    with pytest.raises(NoSnapshot, match="overwrites nothing"):
        make(sqlite.url, target)
    assert target.read_text() == "a letter"
    assert names_in(tmp_path) == ["there"]


def test_a_file_system_without_links_will_do(sqlite: Sqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "hardlink_to", _no_links)

    make(sqlite.url, tmp_path / "copy.db")

    assert names_in(tmp_path) == ["copy.db"]


def _no_links(_path: Path, _target: Path) -> None:
    raise PermissionError("Operation not permitted")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://user:secret@db.example.com/fairlane", "of a Postgres, pg_dump makes one"),
        ("sqlite:///{}/none.db", "there is no database at"),
        ("sqlite:///{}/other.db", "could not be made: no such table: jobs"),
        ("sqlite:///{}/text.db", "text.db, which is no SQLite database"),
    ],
)
def test_what_cannot_be_copied_is_said_in_a_sentence(tmp_path: Path, url: str, sentence: str) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE songs (title)")
    (tmp_path / "text.db").write_text("no database at all, only a text that is long enough to be read as one")
    folder = tmp_path / "copies"
    folder.mkdir()

    with pytest.raises((NoSnapshot, BadSettings), match=sentence) as refused:
        make(url.format(tmp_path), folder / "copy.db")

    assert "secret" not in str(refused.value)
    assert names_in(folder) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_nobody_may_read_it_who_may_not_read_the_database(sqlite: Sqlite, tmp_path: Path, mode: int) -> None:
    sqlite.path.chmod(mode)
    target = tmp_path / "copy.db"

    make(sqlite.url, target)

    assert stat.S_IMODE(target.stat().st_mode) & ~stat.S_IWUSR == mode & ~(stat.S_IWUSR | _umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_may_have_the_longest_name_there_is(sqlite: Sqlite, tmp_path: Path) -> None:
    make(sqlite.url, tmp_path / ("x" * 255))
    assert names_in(tmp_path) == ["x" * 255]


@pytest.mark.parametrize("name", ["x" * 256, "no text \udcff/copy.db", "a loop/copy.db"])
def test_a_name_that_cannot_be_is_said_in_a_sentence(sqlite: Sqlite, tmp_path: Path, name: str) -> None:
    try:
        (tmp_path / "no text \udcff").mkdir()
    except OSError:  # some systems have no such names
        pytest.skip("a folder's name is always a text here")
    (tmp_path / "a loop").symlink_to(tmp_path / "a loop")
    there = sorted(names_in(tmp_path))

    with pytest.raises(NoSnapshot):
        make(sqlite.url, tmp_path / name)

    assert sorted(names_in(tmp_path)) == there
    assert names_in(tmp_path / "no text \udcff") == []


def test_a_folder_that_does_not_exist_is_not_made(sqlite: Sqlite, tmp_path: Path) -> None:
    with pytest.raises(NoSnapshot, match="in a folder that does not exist"):
        make(sqlite.url, tmp_path / "none" / "copy.db")
