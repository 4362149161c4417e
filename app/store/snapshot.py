"""A copy of a SQLite database as it is at one moment, for analysts and for the night: a file of its own that nobody
writes to, made while the service goes on. It knows no service and opens the database by itself."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.errors import FairlaneError
from app.store.dialect import SQLITE
from app.store.engine import parse_url
from app.store.files import unfinished

_PATIENCE_SEC: Final = 30.0
_COUNTED: Final = ("jobs", "job_attempts", "tenants")


class NoSnapshot(FairlaneError):
    """The copy cannot be made; the sentence says why and what would help."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy that was made: its size in bytes, and how many rows its tables have."""

    size: int
    jobs: int
    attempts: int
    tenants: int


def make(url: str, target: Path) -> Snapshot:
    """Copy the database that `url` names into the new file `target`, which is there as a whole or not at all.

    Raises `NoSnapshot` (the file is there already, the database is not, or it is a Postgres), `BadSettings`.
    """
    address = parse_url(url)
    if address.dialect != SQLITE:
        raise NoSnapshot("a snapshot is a copy of a SQLite file; of a Postgres, pg_dump makes one")
    source = Path(address.target)
    with _in_words():
        _refuse(source, target)
        # Nobody may read it who may not read the database.
        with unfinished(target, stat.S_IMODE(source.stat().st_mode) | stat.S_IWUSR) as copy:
            _copy(source, copy)
            made = Snapshot(copy.stat().st_size, *_rows_of(copy))
            _settle(copy, target)
    return made


def _refuse(source: Path, target: Path) -> None:
    if not source.is_file():
        raise NoSnapshot(f"there is no database at {source}")
    if not target.parent.is_dir():
        raise NoSnapshot(f"{target} would be in a folder that does not exist")
    if target.exists() or target.is_symlink():
        raise _there_already(target)


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeError) as error:  # a folder's name may be no text at all
        raise NoSnapshot(f"the snapshot could not be made: {error}") from error


def _copy(source: Path, copy: Path) -> None:
    # Not read-only: without a server the first to look makes the WAL's index. It is for SQLite to see who may.
    with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_SEC)) as database:
        database.execute("VACUUM INTO ?", (str(copy),))


def _rows_of(copy: Path) -> Iterator[int]:
    with closing(sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro", uri=True)) as database:
        for table in _COUNTED:
            [(rows,)] = database.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - our own tables
            yield rows


def _settle(copy: Path, target: Path) -> None:
    """Give the file its name, once it is on the disk. A link, since it never replaces what has come there meanwhile."""
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    try:
        target.hardlink_to(copy)
    except FileExistsError:
        raise _there_already(target) from None
    except OSError:  # a file system without links
        if target.exists():
            raise _there_already(target) from None
        copy.rename(target)


def _there_already(target: Path) -> NoSnapshot:
    return NoSnapshot(f"{target} is there already, and a snapshot overwrites nothing")
