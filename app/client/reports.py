"""Tells the service how jobs have ended: what ends while a report is under way goes together in the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import json

from app.client.calls import MOST_IN_BULK, packed
from app.client.client import AsyncClient
from app.client.errors import Denied, FairlaneError, InvalidRequest, Refused
from app.client.wire import Completed, Failed, Report
from app.client.work import log


@dataclass(frozen=True, slots=True)
class _Waiting:
    report: Completed | Failed
    answered: asyncio.Future[Report]

    def settle(self, answer: Report) -> None:
        if not self.answered.done():  # else whoever asked has been told to end
            self.answered.set_result(answer)

    def settle_as_refused(self, refusal: Refused) -> None:
        self.settle(Report(id=self.report.id, ok=False, state=None, error=str(refusal)))


class Reporter:
    """Takes reports and sends them until they are answered, for as long as `run` runs. Sending again is safe: a token
    whose report was taken is answered the same."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: list[_Waiting] = []
        self._news = asyncio.Event()

    async def tell(self, report: Completed | Failed) -> Report:
        """What became of it, once the service has answered."""
        waiting = _Waiting(report, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._news.set()
        return await waiting.answered

    async def run(self) -> None:
        """Send whatever waits, for ever."""
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._send_all()
                failures = 0
            except FairlaneError as error:
                failures += 1
                terms = self._client.terms
                pause_sec = terms.backoff.pause(failures, terms.dice())
                log.warning("results cannot be reported yet, next try in %.1f s: %s", pause_sec, error)
                await asyncio.sleep(pause_sec)
                self._news.set()

    async def _send_all(self) -> None:
        try:
            for batch in packed(list(self._waiting), _size, MOST_IN_BULK):
                await self._send(batch)
        finally:
            self._waiting = [waiting for waiting in self._waiting if not waiting.answered.done()]

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        try:
            answers = await self._client.finish([waiting.report for waiting in batch])
        except InvalidRequest as refusal:
            if len(batch) > 1:  # one of them is wrong, and none was taken
                for waiting in batch:
                    await self._send([waiting])
            else:
                await self._tell_refused(batch[0], refusal)
            return
        except (
            Denied
        ) as refusal:  # nor will the service take them later: their leases lapse, and the jobs are tried again
            for waiting in batch:
                waiting.settle_as_refused(refusal)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.settle(answer)

    async def _tell_refused(self, waiting: _Waiting, refusal: InvalidRequest) -> None:
        """The service does not take this result, which is too large or no JSON: that is how the job has ended."""
        report = waiting.report
        log.error("the result of job %s was refused: %s", report.id, refusal)
        if isinstance(report, Failed):
            waiting.settle_as_refused(refusal)
            return
        error = f"the result was refused: {refusal}"
        await self._send([replace(waiting, report=Failed(report.id, report.token, error=error))])


def _size(waiting: _Waiting) -> int:
    return len(json.encode(waiting.report))
