"""`fairlane explain`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from app.cli.connection import connected
from app.cli.fields import moment_text, print_fields
from app.cli.json_lines import print_json
from app.cli.names import JOB_ID
from app.client import Client, Explanation, Terms

_NAMED = 10


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, with the fields of the API")
@connected()
def explain(client: Client, job_id: str, *, as_json: bool) -> None:
    """Say why a job waits.

    What goes before it, what holds it, when it may go, and what would make it the next one.
    """
    found = client.explain_job(job_id)
    if as_json:
        print_json(found)
        return
    print_fields(_lines(found), found.state)


def _lines(found: Explanation) -> Iterator[tuple[str, str]]:
    """The fields in the order in which people look for them."""
    yield "id", found.id
    yield "state", found.state
    if found.ahead is not None:
        yield "ahead", f"{'' if found.ahead_exact else 'more than '}{found.ahead}{_whose(found)}"
    for number, reason in enumerate(found.reasons):
        yield "" if number else "why", f"{reason.text} [{reason.code}]"
    if found.estimate is not None:
        earliest, likely, latest = map(
            moment_text, (found.estimate.earliest, found.estimate.likely, found.estimate.latest)
        )
        yield "likely", f"{likely}\nearliest {earliest}\nlatest {latest}"
    yield "to be next", found.to_be_next.text
    if found.terms is not None:
        yield "key", _sum(found.terms)
    if found.bound is not None:
        yield "bound", found.bound.text


def _whose(found: Explanation) -> str:
    """Below the number, a tenant a line, those with the most first."""
    by_number = sorted(found.ahead_by_tenant.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"\n{name} {number}" for name, number in by_number[:_NAMED]]
    if by_number[_NAMED:]:
        lines.append(f"\n{len(by_number) - _NAMED} others {sum(number for _, number in by_number[_NAMED:])}")
    return "".join(lines)


def _sum(terms: Terms) -> str:
    """How its key comes about."""
    if terms.virtual_time is None or terms.clock is None or terms.step is None:
        return f"{terms.key:g}, its effective priority"
    own = "" if not terms.own_charges else f" + {terms.own_charges:g} of jobs of its tenant before it"
    urgent = f" + {terms.priority} x {terms.step:g} for its priority"
    return f"{terms.key:g} shares = {terms.virtual_time:g} used{own}{urgent}; the clock is at {terms.clock:g}"
