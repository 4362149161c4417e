"""The schema of a version that is still to come: our migrations and more on top of them, of which the code under test
knows nothing but what they have left in the database. `python -m tests.ahead migrate up` is that version's command."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from app.cli import main
from app.store import migrate

REPOSITORY: Final = Path(__file__).parents[1]
REVISIONS: Final = tuple(sorted(path.name[:4] for path in (REPOSITORY / "migrations" / "versions").glob("*.py")))
HEAD: Final = REVISIONS[-1]
TO_COME: Final = "1000.0"
"""The release that brings what is added."""

_MODULE: Final = """
from alembic import op
revision = "{revision}"
down_revision = "{down}"
kind = "{kind}"
oldest_code = "{oldest}"
release = "{release}"
def run(*statements):
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)
def upgrade():
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    {up}
def downgrade():
    {back}
"""

EXPANSION: Final = """
    run("ALTER TABLE jobs ADD COLUMN note TEXT CONSTRAINT ck_jobs_note_length CHECK (length(note) < 1000)")
    run("ALTER TABLE tenants ADD COLUMN tier TEXT DEFAULT 'plain' NOT NULL")
    run("ALTER TABLE job_attempts ADD COLUMN host TEXT")
    run("ALTER TABLE dispatcher ADD COLUMN version TEXT")
    run("CREATE INDEX ix_jobs_note ON jobs (note) WHERE note IS NOT NULL")
    run("CREATE TABLE labels (job_id " + ("TEXT" if on_sqlite else "UUID") + " NOT NULL, name TEXT NOT NULL,"
        " CONSTRAINT pk_labels PRIMARY KEY (job_id, name),"
        " CONSTRAINT fk_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE)"
        + (" STRICT" if on_sqlite else ""))
"""
"""Something of all that an expanding migration may do."""


@dataclass(frozen=True)
class Ahead:
    """A copy of our migrations in a folder of its own, to which more are added."""

    folder: Path

    @classmethod
    def within(cls, parent: Path) -> Ahead:
        """With nothing added yet."""
        folder = parent / "100% migrations"  # a percent sign means something to Alembic's configuration
        shutil.copytree(REPOSITORY / "migrations", folder, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(folder)

    def add(
        self,
        up: str = EXPANSION,
        *,
        revision: str = "next",
        down: str = HEAD,
        kind: str = "expanding",
        oldest: str = HEAD,
        release: str = TO_COME,
        back: str = "pass",
    ) -> None:
        """One more migration. `up` and `back` are Python that says `run(...)` of SQL."""
        text = _MODULE.format(
            revision=revision, down=down, kind=kind, oldest=oldest, release=release, up=up.strip(), back=back
        )
        (self.folder / "versions" / f"{revision}.py").write_text(text)

    @contextmanager
    def known(self) -> Iterator[None]:
        """Meanwhile this process is of the version to come, as far as migrations go."""
        with patch.object(migrate, "_migrations", lambda: self.folder):
            yield

    async def upgrade(self, url: str) -> None:
        """What that version's `fairlane migrate up` does."""
        with self.known():
            await migrate.upgrade(url)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        to_come = Ahead.within(Path(made))
        to_come.add()
        with to_come.known():
            main()
