"""The command line. Each command is in the module of its name; `group` holds them together, `exits` says how they end.
But for those that run or prepare the service they know it only through its client."""

from __future__ import annotations

import click

from app.cli.cancel import cancel
from app.cli.completion import completion
from app.cli.config import config
from app.cli.copy import copy, reopen
from app.cli.explain import explain
from app.cli.group import Program
from app.cli.job import job
from app.cli.jobs import jobs
from app.cli.keys import keys
from app.cli.migrate import migrate
from app.cli.pause import pause, resume
from app.cli.queues import queues
from app.cli.replicas import replicas
from app.cli.report import report
from app.cli.reporting_role import reporting_role
from app.cli.retry import retry
from app.cli.serve import serve
from app.cli.snapshot import snapshot
from app.cli.submit import submit
from app.cli.tenant import tenant
from app.cli.tenants import tenants
from app.cli.top import top
from app.cli.wait import wait
from app.cli.worker import worker


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairlane", prog_name="fairlane")
def main() -> None:
    """Fairlane decides what runs next on the machines that many teams share, and for whom."""


main.fill(
    {
        "Jobs": (submit, jobs, job, explain, wait, cancel, retry),
        "Tenants and queues": (tenants, tenant, queues, pause, resume),
        "At work": (worker, top, report),
        "The service": (serve, replicas, migrate, keys, snapshot, copy, reopen, reporting_role, config),
        "This shell": (completion,),
    }
)
