"""How a transaction of the writer ends: what is still to be written, the proof that this process dispatches here, and
the commit. Nobody looks between them, so they are one exchange with the database where that can be: on SQLite one
hand-over to the thread of the connection, on Postgres one statement, which is the whole transaction if nothing came
before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Executable, Insert, Integer, Update, bindparam, cast, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import dialect, parts
from app.store.parts import Part


class Conclusion:
    """The end of one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.may_be_durable = False
        """Whether the transaction may have been committed, though what ended it has failed."""

    async def commit(
        self, at_last: Sequence[Part], proof: Update, given: Mapping[str, Any], *, has_begun: bool
    ) -> None:
        """Write `at_last` and commit, if all of it meets the rows that it expects and `proof`, a constant statement,
        changes one. `has_begun` is whether anything was said in the transaction before. Raises `Redo` or an error of
        the database's otherwise, and whatever else goes wrong with it."""
        if self._connection.dialect.name == dialect.SQLITE:
            await self._commit_on_sqlite(at_last, proof, given)
        else:
            await self._commit_on_postgres(at_last, proof, given, has_begun=has_begun)

    async def commit_plainly(self) -> None:
        """Commit what has been written."""
        self.may_be_durable = True
        await self._connection.commit()

    async def _commit_on_sqlite(self, at_last: Sequence[Part], proof: Update, given: Mapping[str, Any]) -> None:
        connection = self._connection
        gathered = await dialect.gather(connection, 1 + sum(len(part.rows) for part in at_last))
        for part in at_last:
            for statement, cells in part.statements(connection.dialect):
                await connection.execute(statement, cells)
        await connection.execute(proof, given)
        try:
            await self.commit_plainly()
        except BaseException:
            self.may_be_durable = not gathered.is_undone
            raise

    async def _commit_on_postgres(
        self, at_last: Sequence[Part], proof: Update, given: Mapping[str, Any], *, has_begun: bool
    ) -> None:
        connection, together = self._connection, list[Insert | Update]([proof])
        cells, expected = dict(given), 1
        for place, part in enumerate(at_last):
            beside = part.beside(connection.dialect, f"part_{place}")
            if beside is None:
                has_begun = True
                await parts.write(connection, part)
            else:
                together.append(beside[0])
                cells.update(beside[1])
                expected += len(part.rows)
        whole, cells["expected"] = _as_one(tuple(together)), expected
        if has_begun or not await dialect.can_execute_alone(connection):
            await connection.execute(whole, cells)
            await self.commit_plainly()
            return
        self.may_be_durable = bool(at_last)  # memory knows nothing of a claim that may have been renewed
        try:
            await dialect.execute_alone(connection, whole, cells)
        except BaseException as error:
            self.may_be_durable = self.may_be_durable and not dialect.is_undone(error)
            raise
        await connection.commit()  # of which Postgres does not hear


@lru_cache(maxsize=256)
def _as_one(statements: tuple[Insert | Update, ...]) -> Executable:
    """All of these, none of which sees what another does. If they do not change as many rows as `expected`, it divides
    by zero, which undoes them."""
    one = literal_column("1", Integer)
    each = [statement.returning(one).cte(f"changed_{place}") for place, statement in enumerate(statements)]
    counts = [select(func.count()).select_from(changed).scalar_subquery() for changed in each]
    changed = sum(counts[1:], start=counts[0])
    is_all = changed == bindparam("expected", type_=Integer)
    return select(one // cast(is_all, Integer)).add_cte(*each)
