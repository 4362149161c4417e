"""Keys: who may use the service, and how far. What is kept of a key is a digest.

This text is frozen and imports nothing of the application: it must build the same database for ever.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
kind: str = "contracting"  # a version without keys would let everybody in
oldest_code: str = "0003"
release: str = "0.1.0"

_TIMES: Final = ("created_at", "expires_at", "revoked_at", "last_used_at")
_IDS: Final = ("id", "session_of")

_TABLE: Final = """
CREATE TABLE api_keys (
    id {id} NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    tenant TEXT,
    queues {json},
    digest TEXT NOT NULL,
    session_of {id},
    created_at {time} DEFAULT {now} NOT NULL,
    expires_at {time},
    revoked_at {time},
    last_used_at {time},
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT fk_api_keys_session_of_api_keys FOREIGN KEY(session_of) REFERENCES api_keys (id) ON DELETE CASCADE,
    CONSTRAINT ck_api_keys_name_length CHECK (length(name) BETWEEN 1 AND 128 AND trim(name) <> ''),
    CONSTRAINT ck_api_keys_role CHECK (role IN ('tenant', 'worker', 'reader', 'admin')),
    CONSTRAINT ck_api_keys_tenant_of_role CHECK ((role = 'tenant') = (tenant IS NOT NULL)),
    CONSTRAINT ck_api_keys_queues_of_role CHECK (role = 'worker' OR queues IS NULL),
    CONSTRAINT ck_api_keys_digest_length CHECK (length(digest) = 64),
    CONSTRAINT ck_api_keys_times CHECK ({times}){forms}
){options}"""

_INDEX: Final = "CREATE INDEX ix_api_keys_session_of ON api_keys (session_of)"

_SQLITE_TIME: Final = (
    "({0} IS NULL OR ({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND substr({0}, 12, 2) < '24' AND date(substr({0}, 1, 10), '+0 days') IS substr({0}, 1, 10)))"
)
_POSTGRES_TIME: Final = (
    "{0} BETWEEN '0001-01-01 00:00:00+00'::timestamptz AND '9999-12-31 23:59:59.999999+00'::timestamptz"
)
_SQLITE_ID: Final = "({0} IS NULL OR (length({0}) = 32 AND {0} NOT GLOB '*[^0-9a-f]*'))"


def _table(dialect: str) -> str:
    if dialect == "sqlite":
        ids = " AND ".join(_SQLITE_ID.format(column) for column in _IDS)
        return _TABLE.format(
            id="TEXT",
            json="TEXT",
            time="TEXT",
            now="(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')",
            times=" AND ".join(_SQLITE_TIME.format(column) for column in _TIMES),
            forms=f",\n    CONSTRAINT ck_api_keys_ids CHECK ({ids})"
            ",\n    CONSTRAINT ck_api_keys_json CHECK ((queues IS NULL OR json_valid(queues)))",
            options=" STRICT",
        )
    return _TABLE.format(
        id="UUID",
        json="JSONB",
        time="TIMESTAMP WITH TIME ZONE",
        now="now()",
        times=" AND ".join(_POSTGRES_TIME.format(column) for column in _TIMES),
        forms="",
        options="",
    )


def upgrade() -> None:
    connection = op.get_bind()
    connection.exec_driver_sql(_table(connection.dialect.name))
    connection.exec_driver_sql(_INDEX)


def downgrade() -> None:
    op.get_bind().exec_driver_sql("DROP TABLE api_keys")
