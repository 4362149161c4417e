"""A role of Postgres for analysts: it reads what reports are made of and nothing else, and no statement of it runs for
long. Its password reaches the server as the verifier that the server would keep anyway, so no log has it."""
# ruff: noqa: S608 - what is put into SQL is quoted, or made here

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.errors import BadSettings
from app.store.dialect import is_forbidden
from app.store.reports import REPORTS
from app.store.schema import HOURLY, job_attempts, jobs, rollups

MARK: Final = "made by fairlane reporting-role"
SHORTEST_PASSWORD: Final = 12
_ITERATIONS: Final = 4096
_ATTRIBUTES: Final = "NOCREATEROLE CONNECTION LIMIT 10"
_ONLY_AT_FIRST: Final = "NOSUPERUSER NOCREATEDB NOREPLICATION NOBYPASSRLS"
"""What an owner who is no superuser may say of a role that it makes, and not of one that there is."""
_SECRET: Final = frozenset({"token", "idempotency_key", "request_digest"})
"""No analyst's: who has a token can end an attempt."""


@dataclass(frozen=True, slots=True)
class ReportingRole:
    """What is wanted. `verifier` is what `scram_verifier` makes of a password; None leaves it as it is. With
    `whole_jobs` it may also read the tables of jobs and attempts, payloads, results and errors included, but for what
    is secret."""

    name: str
    verifier: str | None
    timeout_sec: float
    whole_jobs: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= 63 or not self.name.isprintable() or self.name.startswith("pg_"):
            raise BadSettings("a role's name has 1 to 63 bytes, all of them printable, and does not begin with pg_")


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What Postgres keeps of a password (RFC 5803). Raises `BadSettings` for one that it might read in another way."""
    if not (password.isascii() and password.isprintable() and len(password) >= SHORTEST_PASSWORD):
        raise BadSettings(
            f"the password must have at least {SHORTEST_PASSWORD} characters, all of them printable ASCII"
        )
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return f"SCRAM-SHA-256${_ITERATIONS}:{_base64(salt)}${_base64(stored)}:{_base64(_hmac(salted, b'Server Key'))}"


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, "sha256").digest()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


async def statements(engine: AsyncEngine, role: ReportingRole) -> list[str]:
    """The SQL that makes the role, or brings the one that there is into line. Running it twice changes nothing.

    Raises `BadSettings` for a role that there is and that was not made here.
    """
    async with engine.connect() as connection:
        database, schema = (await connection.execute(text("SELECT current_database(), current_schema()"))).one()
        return _statements(role, database, schema, exists=await _exists(connection, role.name))


async def make(engine: AsyncEngine, role: ReportingRole) -> None:
    """Run `statements`, all or none. Raises `BadSettings`, also if the role that we are has no right to."""
    made = await statements(engine, role)
    try:
        async with engine.begin() as connection:
            for statement in made:
                await connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if not is_forbidden(error):
            raise
        why = "it must own the tables and have CREATEROLE"
        raise BadSettings(
            f"the role in FAIRLANE_DATABASE_URL may not do that: {error.driver_exception}; {why}"
        ) from error


async def _exists(connection: AsyncConnection, name: str) -> bool:
    found = (
        await connection.execute(
            text("SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = :name"), {"name": name}
        )
    ).all()
    if found and found[0][0] != MARK:
        raise BadSettings(f"there is a role {name} that was not made here, and it is left as it is; take another name")
    return bool(found)


def _statements(role: ReportingRole, database: str, schema: str, *, exists: bool) -> list[str]:
    name, within = _quoted(role.name), f"IN DATABASE {_quoted(database)}"
    password = "" if role.verifier is None else f" PASSWORD '{role.verifier}'"
    views = [report.view for report in REPORTS]
    tables = [rollups.name, *(table.name for table in HOURLY), "alembic_version"]
    made = [
        f"ALTER ROLE {name} LOGIN {_ATTRIBUTES}{password}"
        if exists
        else f"CREATE ROLE {name} LOGIN {_ONLY_AT_FIRST} {_ATTRIBUTES}{password}",
        f"COMMENT ON ROLE {name} IS '{MARK}'",
        f"ALTER ROLE {name} {within} SET default_transaction_read_only = on",
        f"ALTER ROLE {name} {within} SET statement_timeout = {round(role.timeout_sec * 1000)}",
        f"ALTER ROLE {name} {within} SET idle_in_transaction_session_timeout = {round(role.timeout_sec * 1000)}",
        f"GRANT CONNECT ON DATABASE {_quoted(database)} TO {name}",
        f"GRANT USAGE ON SCHEMA {_quoted(schema)} TO {name}",
        f"GRANT SELECT ON {_within(schema, [*views, *tables])} TO {name}",
        f"GRANT EXECUTE ON FUNCTION {_within(schema, ['report_rolled_until'])}() TO {name}",
    ]
    whole = (jobs, job_attempts)
    if not role.whole_jobs:  # in case an earlier run was told otherwise
        return [*made, f"REVOKE SELECT ON {_within(schema, [table.name for table in whole])} FROM {name}"]
    return [*made, *(f"GRANT SELECT ({_shown(table)}) ON {_within(schema, [table.name])} TO {name}" for table in whole)]


def _shown(table: Table) -> str:
    return ", ".join(column.name for column in table.columns if column.name not in _SECRET)


def _within(schema: str, names: Sequence[str]) -> str:
    return ", ".join(f"{_quoted(schema)}.{_quoted(name)}" for name in names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
