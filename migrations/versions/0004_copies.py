"""Copies: what a database was copied from or into, and the one way round the trigger that refuses jobs in the middle of
their life. It is open while a copy into an empty database is under way; no server serves such a database.

This text is frozen and imports nothing of the application: it must build the same database for ever.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
kind: str = "contracting"  # a version that knows of no copies would serve half of one
oldest_code: str = "0004"
release: str = "0.1.0"

_TYPES: Final = {
    "sqlite": {"id": "TEXT", "time": "TEXT", "options": " STRICT"},
    "postgresql": {"id": "UUID", "time": "TIMESTAMP WITH TIME ZONE", "options": ""},
}

_TABLE: Final = """
CREATE TABLE copies (
    direction TEXT NOT NULL,
    id {id} NOT NULL,
    other TEXT NOT NULL,
    begun_at {time} NOT NULL,
    position TEXT,
    finished_at {time},
    CONSTRAINT pk_copies PRIMARY KEY (direction),
    CONSTRAINT ck_copies_direction CHECK (direction IN ('in', 'out')){forms}
){options}"""

_REAL_TIME: Final = (
    "({0} IS NULL OR ({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND substr({0}, 12, 2) < '24' AND date(substr({0}, 1, 10), '+0 days') IS substr({0}, 1, 10)))"
)
_SANE_TIME: Final = "{0} BETWEEN '0001-01-01 00:00:00+00'::timestamptz AND '9999-12-31 23:59:59.999999+00'::timestamptz"
_ID: Final = "(id IS NULL OR (length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*'))"


def _forms(dialect: str) -> str:
    time = _REAL_TIME if dialect == "sqlite" else _SANE_TIME
    times = " AND ".join(time.format(column) for column in ("begun_at", "finished_at"))
    ids = f",\n    CONSTRAINT ck_copies_ids CHECK ({_ID})" if dialect == "sqlite" else ""
    return f",\n    CONSTRAINT ck_copies_times CHECK ({times}){ids}"


_FIRST_STATE: Final = ("tr_jobs_first_state", "a new job is pending or queued")
_IN_THE_MIDDLE: Final = "NEW.state NOT IN ('pending', 'queued')"
_IS_COPIED_INTO: Final = "EXISTS (SELECT 1 FROM {}copies WHERE direction = 'in' AND finished_at IS NULL)"

_INTO_EMPTY: Final = ("tr_copies_into_empty", "a service is copied only into a database without jobs")
_IS_EMPTY: Final = "NOT EXISTS (SELECT 1 FROM {}jobs)"

_FIXED: Final = ("tr_copies_fixed", "what a copy is never changes, nor does a copy that is finished")
_IS_CHANGED: Final = "OLD.finished_at IS NOT NULL OR NEW.direction <> OLD.direction OR NEW.id <> OLD.id"

# A condition of a trigger can look at no other table on Postgres, so it stands in the function's second argument. Whose
# tables they are is the trigger's to say, not the session's.
_REFUSE_UNLESS: Final = """
CREATE FUNCTION fairlane_refuse_unless() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_allowed boolean;
BEGIN
    EXECUTE 'SELECT ' || format(TG_ARGV[1], TG_TABLE_SCHEMA) INTO is_allowed;
    IF is_allowed THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        MESSAGE = TG_NAME || ': ' || TG_ARGV[0],
        ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END $$"""


def _trigger_on_sqlite(rule: tuple[str, str], event: str, when: str) -> str:
    name, sentence = rule
    return f"CREATE TRIGGER {name} BEFORE {event} WHEN {when} BEGIN SELECT RAISE(ABORT, '{name}: {sentence}'); END"


def _trigger_on_postgres(rule: tuple[str, str], event: str, when: str, unless: str = "") -> str:
    name, sentence = rule
    function = "fairlane_refuse" + ("_unless" if unless else "")
    condition = ", '" + unless.format("%1$I.").replace("'", "''") + "'" if unless else ""
    return (
        f"CREATE TRIGGER {name} BEFORE {event} FOR EACH ROW WHEN ({when})"
        f" EXECUTE FUNCTION {function}('{sentence}'{condition})"
    )


def _triggers(dialect: str) -> list[str]:
    if dialect == "sqlite":
        is_not_copied_into = f"{_IN_THE_MIDDLE} AND NOT {_IS_COPIED_INTO.format('')}"
        return [
            "DROP TRIGGER tr_jobs_first_state",
            _trigger_on_sqlite(_FIRST_STATE, "INSERT ON jobs", is_not_copied_into),
            _trigger_on_sqlite(_INTO_EMPTY, "INSERT ON copies", f"NEW.direction = 'in' AND NOT {_IS_EMPTY.format('')}"),
            _trigger_on_sqlite(_FIXED, "UPDATE ON copies", _IS_CHANGED),
        ]
    return [
        _REFUSE_UNLESS,
        "DROP TRIGGER tr_jobs_first_state ON jobs",
        _trigger_on_postgres(_FIRST_STATE, "INSERT ON jobs", _IN_THE_MIDDLE, _IS_COPIED_INTO),
        _trigger_on_postgres(_INTO_EMPTY, "INSERT ON copies", "NEW.direction = 'in'", _IS_EMPTY),
        _trigger_on_postgres(_FIXED, "UPDATE ON copies", _IS_CHANGED),
    ]


def upgrade() -> None:
    connection = op.get_bind()
    dialect = connection.dialect.name
    for statement in (_TABLE.format(forms=_forms(dialect), **_TYPES[dialect]), *_triggers(dialect)):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        before = [
            "DROP TRIGGER tr_jobs_first_state",
            _trigger_on_sqlite(_FIRST_STATE, "INSERT ON jobs", _IN_THE_MIDDLE),
        ]
    else:
        before = [
            "DROP TRIGGER tr_jobs_first_state ON jobs",
            _trigger_on_postgres(_FIRST_STATE, "INSERT ON jobs", _IN_THE_MIDDLE),
        ]
    for statement in (*before, "DROP TABLE copies"):
        connection.exec_driver_sql(statement)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION fairlane_refuse_unless()")
