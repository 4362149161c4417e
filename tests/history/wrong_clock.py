"""A host whose wall clock somebody sets while the service runs: what it shows is off by what a file says, also to a
database on that host. Nothing else of the service is touched, and the monotonic clock goes as it goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from app.cli import main
from app.clock import Clock, DatabaseClock

PROGRAM: Final = "from tests.history.wrong_clock import serve; serve()"
"""What Python runs instead of the service's own program."""

_FILE: Final = "WRONG_CLOCK"
_WITH_DATABASE: Final = "WRONG_CLOCK_OF_THE_DATABASE_TOO"


class WrongClock:
    """The hand that sets it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "seconds"
        self.off_by(0)

    def off_by(self, seconds: float) -> None:
        """So far it is ahead from now on; behind if negative."""
        new = self._path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._path)

    def shows(self, moment: datetime) -> None:
        """It is that time now."""
        self.off_by((moment - datetime.now(UTC)).total_seconds())

    def host(self, time_zone: str, *, with_database: bool) -> Mapping[str, str]:
        """The environment of a process on that host. `with_database` says that the database runs there too."""
        return {_FILE: str(self._path), "TZ": time_zone} | ({_WITH_DATABASE: "1"} if with_database else {})


def serve() -> None:
    """The service by that clock."""
    path, heard_truly = Path(os.environ[_FILE]), DatabaseClock.heard

    def off_by() -> timedelta:
        return timedelta(seconds=float(path.read_text()))

    def wall(_clock: Clock) -> datetime:
        return datetime.now(UTC) + off_by()

    def heard(clock: DatabaseClock, shown: datetime, asked_at: float) -> None:
        heard_truly(clock, shown + off_by(), asked_at)

    Clock._wall = wall  # type: ignore[assignment,method-assign]
    if os.environ.get(_WITH_DATABASE):
        DatabaseClock.heard = heard  # type: ignore[assignment,method-assign]
    main()
