"""`make demo`: a server, three workers, three tenants of weights 3, 1 and 1 with real pytest suites, and a worker that
is killed on the way. Everything is a process of its own, as it would be in earnest; it takes less than a minute."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.client import Client, FairlaneError, Job, NewJob

HERE = Path(__file__).parent
SUITES = sorted(f"suites/{suite.name}" for suite in (HERE / "suites").glob("test_*.py"))
WEIGHTS = {"red": 3, "green": 1, "blue": 1}
JOBS = {"red": 36, "green": 18, "blue": 18}
"""So many that all have jobs waiting while the shares are measured."""

WORKERS = 3
LEASE_SEC = 3
KILL_AFTER = 15
"""Jobs that end before one of the workers is killed."""


@contextmanager
def process(name: str, folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`fairlane` with these arguments, its output in a file, ended with the block."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLANE_")}
    environ |= {"FAIRLANE_URL": url, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the suites need none, and start faster
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=HERE, env=environ, stdout=log, stderr=log)
        try:
            yield running
        finally:
            running.terminate()
            running.wait(timeout=30)


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_it_answers(client: Client) -> None:
    """Wait for the server to be up."""
    while True:
        try:
            client.within(1).stats()
        except FairlaneError:
            time.sleep(0.1)
        else:
            return


def submit_everything(client: Client) -> None:
    """The tenants with their weights, then all their jobs at once."""
    for tenant, weight in WEIGHTS.items():
        client.put_tenant(tenant, weight=weight)
    client.submit_all(
        NewJob(tenant=tenant, test_suite=SUITES[number % len(SUITES)])
        for tenant, count in JOBS.items()
        for number in range(count)
    )


def view(jobs: list[Job], told: list[str]) -> Group:
    """What is going on, for the terminal."""
    table = Table(box=None)
    for column in ("tenant", "weight", "waiting", "running", "done", ""):
        table.add_column(column, justify="left" if column in ("tenant", "") else "right")
    for tenant, weight in WEIGHTS.items():
        states = Counter(str(job.state) for job in jobs if job.tenant == tenant)
        running, done = states["scheduled"] + states["running"], states["completed"] + states["failed"]
        waiting = states["queued"] + states["pending"]
        bar = ProgressBar(JOBS[tenant], done, width=30)
        table.add_row(Text(tenant, tenant), str(weight), str(waiting), str(running), str(done), bar)
    return Group(table, *(Text(line, "dim") for line in told))


def watch(client: Client, console: Console, workers: list[subprocess.Popen[bytes]]) -> list[Job]:
    """Show the jobs until all have ended; on the way, kill a worker in the middle of its job."""
    told = [f"{WORKERS} workers run pytest on {sum(JOBS.values())} suites of {len(JOBS)} tenants"]
    victim = workers[1]
    with Live(console=console, refresh_per_second=8) as live:
        while True:
            jobs = list(client.iter_jobs(limit=1000))
            ended = sum(str(job.state) in ("completed", "failed", "cancelled") for job in jobs)
            if any(worker.poll() is not None for worker in workers if worker is not victim):
                raise SystemExit("a worker has ended by itself")
            if ended >= KILL_AFTER and victim.poll() is None:
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                told.append(f"worker-2 was killed; its job comes back when its lease of {LEASE_SEC} s lapses")
            live.update(view(jobs, told))
            if jobs and ended == len(jobs):
                return jobs
            time.sleep(0.2)


def verdict(client: Client, jobs: list[Job]) -> Table:
    """What each tenant got while all of them had jobs waiting, against what its weight promises."""
    dispatched = sorted(
        (attempt.scheduled_at, job.tenant, attempt.number) for job in jobs for attempt in client.list_attempts(job.id)
    )
    left = Counter(JOBS)
    got: Counter[str] = Counter()
    for _, tenant, number in dispatched:
        if min(left.values()) == 0:
            break
        got[tenant] += 1
        left[tenant] -= number == 1
    table = Table(title="While all three had jobs waiting")
    for column in ("tenant", "weight", "promised", "got", "dispatches", "completed", "attempts lost"):
        table.add_column(column, justify="left" if column == "tenant" else "right")
    for tenant, weight in WEIGHTS.items():
        mine = [job for job in jobs if job.tenant == tenant]
        table.add_row(
            Text(tenant, tenant),
            str(weight),
            f"{weight / sum(WEIGHTS.values()):.0%}",
            f"{got[tenant] / got.total():.0%}",
            str(got[tenant]),
            f"{sum(str(job.state) == 'completed' for job in mine)} of {len(mine)}",
            str(sum(job.attempt - 1 for job in mine)),
        )
    return table


def main() -> None:
    """Run the demo."""
    console, began, url = Console(), time.monotonic(), f"http://127.0.0.1:{free_port()}"
    worker = ("worker", "--lease", str(LEASE_SEC), "--", sys.executable, "-m", "pytest", "{test_suite}")
    with tempfile.TemporaryDirectory() as folder, Client(url) as client, ExitStack() as processes:
        logs = Path(folder)
        port = url.rpartition(":")[2]
        database = f"sqlite:///{logs / 'demo.db'}"
        processes.enter_context(process("server", logs, url, "serve", "--port", port, "--database-url", database))
        until_it_answers(client)
        submit_everything(client)
        workers = [
            processes.enter_context(process(f"worker-{number}", logs, url, *worker)) for number in range(1, WORKERS + 1)
        ]
        jobs = watch(client, console, workers)
        console.print()
        console.print(verdict(client, jobs))
    console.print(f"{len(jobs)} jobs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
