"""Cheaper checks on SQLite: they refuse what they refused, by the same names, in words that cost it half.

Only the text that it keeps of its tables and triggers changes; no row is read or written, however many there are.

This text is frozen and imports nothing of the application: it must build the same database for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from alembic import op
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

revision: str = "0006"
down_revision: str | None = "0005"
kind: str = "expanding"  # nothing is refused, nor let through, that was not before
oldest_code: str = "0004"
release: str = "0.1.0"

Words: TypeAlias = list[tuple[str, str]]
"""What is said in other words: before, after."""

# In an update SQLite looks only at checks that name a column which is set: so there is one a column.
_FORMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tenants": {"flags": ("unlimited", "paused"), "times": ("created_at", "updated_at")},
    "jobs": {
        "times": (
            "submitted_at",
            "due_at",
            "run_at",
            "queued_at",
            "scheduled_at",
            "started_at",
            "completed_at",
            "lease_expires_at",
        ),
        "ids": ("id", "retry_of"),
        "json": ("payload", "result"),
    },
    "job_attempts": {"times": ("queued_at", "scheduled_at", "started_at", "ended_at")},
    "dispatcher": {"times": ("expires_at", "last_time")},
    "rollups": {"times": ("until",)},
    "hourly_tenants": {"times": ("hour",)},
    "hourly_fairness": {"times": ("hour",)},
    "hourly_suites": {"times": ("hour",)},
    "hourly_workers": {"times": ("hour", "last_seen_at")},
    "minutely_queues": {"times": ("minute",)},
    "api_keys": {"times": ("created_at", "expires_at", "revoked_at", "last_used_at"), "ids": ("id", "session_of")},
    "copies": {"times": ("begun_at", "finished_at")},
    "replicas": {"times": ("started_at", "last_seen_at", "dispatching_since")},
}

_FORM: Final = {
    "times": "({0} IS NULL OR ({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND substr({0}, 12, 2) < '24' AND date(substr({0}, 1, 10), '+0 days') IS substr({0}, 1, 10)))",
    "ids": "({0} IS NULL OR (length({0}) = 32 AND {0} NOT GLOB '*[^0-9a-f]*'))",
    "json": "({0} IS NULL OR json_valid({0}))",
    "flags": "{0} IN (0, 1)",
}

# date() reads what the pattern leaves open. It turns February 31 into March 3, and the hour 24 into the day after.
_NEW_FORM: Final = {
    **_FORM,
    "times": "({0} IS NULL OR ({0} GLOB '??????????T??:??:??.[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND date(substr({0}, 1, 19), '+0 days') IS substr({0}, 1, 10)))",
}

# Of a list of three words and more SQLite makes a table, anew for each statement and each run of a trigger, and to look
# a word up there takes it ten times as long as to compare it with all of them.
_LISTS: Final = {
    "jobs": (
        "state IN ('pending', 'queued', 'scheduled', 'running',\n        'completed', 'failed', 'cancelled')",
        "state NOT IN ('queued', 'scheduled', 'running', 'completed')",
        "state NOT IN ('scheduled', 'running', 'completed')",
        "state NOT IN ('pending', 'queued', 'completed', 'failed', 'cancelled')",
        "state NOT IN ('pending', 'queued', 'scheduled')",
        "state NOT IN ('completed', 'failed', 'cancelled')",
        "state NOT IN ('pending', 'queued', 'scheduled', 'running')",
        "state NOT IN ('pending', 'queued', 'scheduled', 'running', 'failed', 'cancelled')",
    ),
    "job_attempts": ("outcome IN ('completed', 'failed', 'lapsed', 'timed out',\n        'released', 'cancelled')",),
    "tr_jobs_legal_move": (
        "OLD.state NOT IN ('completed', 'failed', 'cancelled')",
        "NEW.state IN ('queued', 'failed', 'cancelled')",
        "NEW.state IN ('scheduled', 'failed', 'cancelled')",
        "NEW.state IN ('running', 'queued', 'failed', 'cancelled')",
        "NEW.state IN ('completed', 'pending', 'queued', 'failed', 'cancelled')",
    ),
    **dict.fromkeys(
        ("tr_jobs_final", "tr_jobs_identity", "tr_jobs_request", "tr_jobs_priority"),
        ("OLD.state NOT IN ('completed', 'failed', 'cancelled')",),
    ),
}


def _compared(listed: str) -> str:
    condition, _, words = listed.removesuffix(")").partition(" (")
    subject, _, test = condition.partition(" ")
    sign, joint = {"IN": ("=", " OR "), "NOT IN": ("<>", " AND ")}[test]
    return "(" + joint.join(f"{subject} {sign} {word.strip()}" for word in words.split(",")) + ")"


def _one_check(table: str, form: str, columns: tuple[str, ...]) -> str:
    return f"CONSTRAINT ck_{table}_{form} CHECK ({' AND '.join(_FORM[form].format(column) for column in columns)})"


def _check_a_column(table: str, form: str, columns: tuple[str, ...]) -> str:
    return ",\n    ".join(
        f"CONSTRAINT ck_{table}_{form} CHECK ({_NEW_FORM[form].format(column)})" for column in columns
    )


def _other_words() -> Mapping[str, Words]:
    """By table and trigger."""
    said: dict[str, Words] = {name: [(listed, _compared(listed)) for listed in lists] for name, lists in _LISTS.items()}
    for table, forms in _FORMS.items():
        said.setdefault(table, []).extend(
            (_one_check(table, form, columns), _check_a_column(table, form, columns)) for form, columns in forms.items()
        )
    return said


def _say(connection: Connection, said: Mapping[str, Words]) -> None:
    """As SQLite's documentation of ALTER TABLE has it for checks: its own table of texts is written to, which is undone
    with the rest of the transaction, and read anew."""
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    if _is_forbidden(connection):
        connection.exec_driver_sql("PRAGMA writable_schema = OFF")
        return
    for name, words in said.items():
        text = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).scalar() or ""
        for before, after in words:
            if before not in text:
                raise CommandError(f"{name} is not as Fairlane made it, for it does not say: {before}")
            text = text.replace(before, after)
        connection.exec_driver_sql("UPDATE sqlite_master SET sql = ? WHERE name = ?", (text, name))
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")  # who has the file open reads it anew, too
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")


def _is_forbidden(connection: Connection) -> bool:
    """Whether the library is built to let nobody do it, as that of macOS is: it keeps the words it has."""
    try:
        connection.exec_driver_sql("UPDATE sqlite_master SET sql = sql WHERE false")
    except OperationalError:
        return True
    return False


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        _say(connection, _other_words())


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        back = {name: [(after, before) for before, after in words] for name, words in _other_words().items()}
        _say(connection, back)
