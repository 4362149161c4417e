"""The page on reports is true: each question has the same answer on both databases, before and after the hours are
rolled up, and each column is described."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.store.reports import REPORTS
from tests.databases import Database
from tests.reports.history import write
from tests.reports.looking import roll_up, said
from tests.reports.page import Question, promised_columns, questions, shown
from tests.reports.sample import DAY, STORIES, WEIGHTS

ASKED = [pytest.param(question, id=question.title) for question in questions()]


async def answers(database: Database, question: Question) -> list[list[str]]:
    """The rows as the page shows them, in words."""
    return [" ".join(map(shown, row)).split() for row in await said(database, question.sql)]


def on_the_page(question: Question) -> list[list[str]]:
    """The same, of the page."""
    return [line.split() for line in question.answer.splitlines()[1:]]


@pytest.mark.parametrize("question", ASKED)
async def test_a_question_has_the_answer_of_the_page(both: tuple[Database, Database], question: Question) -> None:
    for database in both:
        assert await answers(database, question) == on_the_page(question)


async def test_the_answers_are_the_same_when_hours_are_rolled_up(database: Database) -> None:
    await write(database, DAY, WEIGHTS, STORIES)
    for hour in (8, 9, 10):
        await roll_up(database, datetime(2026, 3, 2, tzinfo=UTC) + timedelta(hours=hour))
        for question in questions():
            assert await answers(database, question) == on_the_page(question), (hour, question.title)


def test_there_are_a_dozen_questions() -> None:
    assert len(list(questions())) >= 12


def test_every_column_of_every_view_is_described_and_no_other() -> None:
    assert promised_columns() == {report.view: list(report.columns) for report in REPORTS}
