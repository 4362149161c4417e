"""Sends many jobs: in batches, each all or none, at the pace that their tenants' rates allow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.cli.lines import Line
from app.client import Client, InvalidRequest, Job, RateLimited
from app.client.calls import packed

MOST_LINES: Final = 1000
MOST_BYTES: Final = 4 * 1024 * 1024
_PLACE: Final = re.compile(r"jobs\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch that is stored: its lines and their jobs, in the same order."""

    lines: Sequence[Line]
    jobs: Sequence[Job]

    def new_since(self, moment: datetime | None) -> int:
        """How many of them were not stored before. The service never gives out a time twice."""
        return sum(moment is None or job.submitted_at > moment for job in self.jobs)


def send_all(client: Client, lines: Iterable[Line], told_to_wait: Callable[[str], None]) -> Iterator[Stored]:
    """Send the lines in order; what is yielded is stored. `told_to_wait` hears why, when a tenant's rate is used up.

    Raises the errors of `Client.submit_batch`; the batch it was raised for is not stored.
    """
    for batch in packed(lines, lambda line: line.size, MOST_LINES, MOST_BYTES):
        yield from _send(client, batch, told_to_wait)


def _send(client: Client, batch: Sequence[Line], told_to_wait: Callable[[str], None]) -> Iterator[Stored]:
    while True:
        try:
            yield Stored(batch, client.submit_batch([line.job for line in batch]))
        except RateLimited as error:
            if error.retry_after is None:  # too many wait already: nobody knows until when
                raise
            told_to_wait(f"{error}; goes on in {error.retry_after} s")
            time.sleep(error.retry_after)
        except InvalidRequest as error:
            if error.details or len(batch) == 1:
                raise _in_lines(error, batch) from None
            break  # more at once than a tenant's burst
        else:
            return
    half = len(batch) // 2
    yield from _send(client, batch[:half], told_to_wait)
    yield from _send(client, batch[half:], told_to_wait)


def _in_lines(error: InvalidRequest, batch: Sequence[Line]) -> InvalidRequest:
    """The error with the numbers of lines in place of those of a request's items."""

    def line(found: re.Match[str]) -> str:
        return f"line {batch[int(found[1])].number}"

    return InvalidRequest(_PLACE.sub(line, str(error)), error.status)
