"""${message}

This text is frozen once it is released, and imports nothing of the application.
"""

from __future__ import annotations

from alembic import op
${imports if imports else ""}
revision: str = ${repr(up_revision)}
down_revision: str | None = ${repr(down_revision)}
kind: str = "expanding"  # or "contracting", with the reason (CONTRIBUTING.md)
oldest_code: str = ""  # if it expands, as the migration before has it
release: str = ""  # the first version that has it


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
