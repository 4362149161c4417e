"""A host whose wall clock somebody sets while the service runs: what it shows is off by what a file says. Nothing else
of the service is touched, and the monotonic clock goes as it goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from app.cli import main
from app.clock import Clock

PROGRAM: Final = "from tests.history.wrong_clock import serve; serve()"
"""What Python runs instead of the service's own program."""

_FILE: Final = "WRONG_CLOCK"


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

    def host(self, time_zone: str) -> Mapping[str, str]:
        """The environment of a process on that host."""
        return {_FILE: str(self._path), "TZ": time_zone}


def serve() -> None:
    """The service by that clock."""
    path = Path(os.environ[_FILE])

    def wall(_clock: Clock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(path.read_text()))

    Clock._wall = wall  # type: ignore[assignment,method-assign]
    main()
