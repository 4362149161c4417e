"""Jobs as the tables of `app.store` write them, with nothing behind them."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.dialect import draw_seqs, upsert
from app.store.schema import jobs, tenants


async def add_jobs(connection: AsyncConnection, count: int, **columns: Any) -> list[str]:
    """Pending jobs of the tenant acme; their ids in the order of their seq."""
    await connection.execute(upsert(connection, tenants, keys=["name"], update=[]), [{"name": "acme"}])
    rows = [
        {"seq": seq, "id": uuid.uuid4().hex, "tenant": "acme", "test_suite": "unit", **columns}
        for seq in await draw_seqs(connection, count)
    ]
    await connection.execute(insert(jobs), rows)
    return [row["id"] for row in rows]
