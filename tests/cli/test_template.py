"""Placeholders: what they stand for, what is refused, and that a value is never more than a value."""

from __future__ import annotations

import pytest

from app.runner.template import BadTemplate, Template, fields_of
from tests.cli.jobs import a_job


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{test_suite}", "tests/login"),
        ("--suite={test_suite};{tenant}/{id}", f"--suite=tests/login;acme/{'0' * 32}"),
        ("{queue} {priority} {cost} {attempt} {max_attempts}", "default 2 1 1 3"),
        ("{{tenant}} {{{tenant}}}", "{tenant} {acme}"),
        ("", ""),
    ],
)
def test_placeholders_stand_for_the_jobs_fields(text: str, filled: str) -> None:
    assert Template.parse(text).fill(a_job()) == filled


@pytest.mark.parametrize(
    "text", ["{}", "{suite}", "{tenant.name}", "{tenant[0]}", "{tenant!r}", "{tenant:>9}", "{payload}"]
)
def test_an_unknown_placeholder_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(BadTemplate, match=r"is no placeholder here; there are \{id\} \{tenant\}"):
        Template.parse(text)


@pytest.mark.parametrize("text", ["{", "}", "a { b", "{tenant", "tenant}"])
def test_a_brace_alone_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(BadTemplate, match=r"write \{\{ and \}\} for braces"):
        Template.parse(text)


@pytest.mark.parametrize("value", ["{tenant}", "{{x}}", "$(reboot)", "a b", "'\"`;&|", "\u202e"])
def test_a_value_is_put_in_as_it_is(value: str) -> None:
    assert Template.parse("<{test_suite}>").fill(a_job(test_suite=value)) == f"<{value}>"


def test_the_fields_of_several_are_those_of_all() -> None:
    assert fields_of([Template.parse("{id}{tenant}"), Template.parse("x"), Template.parse("{id}")]) == {"id", "tenant"}
