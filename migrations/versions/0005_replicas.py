"""Replicas: the servers on a database, as each says of itself.

This text is frozen and imports nothing of the application: it must build the same database for ever.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
kind: str = "expanding"
oldest_code: str = "0004"
release: str = "0.1.0"

_TYPES: Final = {
    "sqlite": {"time": "TEXT", "options": " STRICT"},
    "postgresql": {"time": "TIMESTAMP WITH TIME ZONE", "options": ""},
}

_TABLE: Final = """
CREATE TABLE replicas (
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    started_at {time} NOT NULL,
    last_seen_at {time} NOT NULL,
    dispatching_since {time},
    CONSTRAINT pk_replicas PRIMARY KEY (name),
    CONSTRAINT ck_replicas_times CHECK ({times})
){options}"""

_REAL_TIME: Final = (
    "({0} IS NULL OR ({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND substr({0}, 12, 2) < '24' AND date(substr({0}, 1, 10), '+0 days') IS substr({0}, 1, 10)))"
)
_SANE_TIME: Final = "{0} BETWEEN '0001-01-01 00:00:00+00'::timestamptz AND '9999-12-31 23:59:59.999999+00'::timestamptz"
_TIMES: Final = ("started_at", "last_seen_at", "dispatching_since")


def upgrade() -> None:
    connection = op.get_bind()
    dialect = connection.dialect.name
    form = _REAL_TIME if dialect == "sqlite" else _SANE_TIME
    times = " AND ".join(form.format(column) for column in _TIMES)
    connection.exec_driver_sql(_TABLE.format(times=times, **_TYPES[dialect]))


def downgrade() -> None:
    op.get_bind().exec_driver_sql("DROP TABLE replicas")
