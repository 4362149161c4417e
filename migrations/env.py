"""Alembic runs this for every command: inside `app.store.migrate`, which brings a connection along, and for
the plain `alembic` command, which works on FAIRLANE_DATABASE_URL."""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from app.store.engine import open_migrator
from app.store.migrate import migrate_within
from app.store.schema import metadata


def run_on(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_server_default=False)
    with context.begin_transaction():
        migrate_within(connection, context.run_migrations)


async def run_on_the_url() -> None:
    engine = open_migrator(os.environ.get("FAIRLANE_DATABASE_URL", "sqlite:///fairlane.db"))
    try:
        async with engine.begin() as connection:
            await connection.run_sync(run_on)
    finally:
        await engine.dispose()


if context.is_offline_mode():
    raise SystemExit("migrations look at the database they change; --sql is not supported")

given = context.config.attributes.get("connection")
if given is None:
    asyncio.run(run_on_the_url())
else:
    run_on(given)
