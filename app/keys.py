"""What lets a client in, and how far: the text of a key, its digest, and what its holder may do. Pure but for the dice
that a new key is thrown with; where keys are kept and how they are sent is not known here."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Final

_TEXT: Final = re.compile(r"fairlane_([0-9a-f]{32})_([A-Za-z0-9_-]{43})", re.ASCII)
_WRITTEN: Final = re.compile(r"(fairlane_[0-9a-f]{32}_)[\w-]+", re.ASCII | re.IGNORECASE)
_SECRET_BYTES: Final = 32
_NO_DIGEST: Final = "0" * 64


def without_secrets(text: str) -> str:
    """The text with `***` in place of what is secret of the keys in it: people put them where they do not belong."""
    return _WRITTEN.sub(r"\1***", text)


class Role(StrEnum):
    """What a key is for."""

    TENANT = "tenant"
    """Submits, sees and ends the jobs of its own tenant, and nothing of others."""

    WORKER = "worker"
    """Claims from its queues, and reports by token."""

    READER = "reader"
    """Sees everything and changes nothing."""

    ADMIN = "admin"
    """May do everything."""


@dataclass(frozen=True, slots=True)
class Grant:
    """How far a key lets its holder: `tenant` for that role alone; `queues` for workers, None: from all."""

    role: Role
    tenant: str | None = None
    queues: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who sends a request: under which key (None: none is asked for), and what that grants."""

    key_id: str | None
    grant: Grant

    @property
    def tenant(self) -> str | None:
        """The only tenant whose jobs are seen; None: all are."""
        return self.grant.tenant

    @property
    def is_limited(self) -> bool:
        """Whether there are jobs that this holder must not see."""
        return self.grant.tenant is not None or self.grant.queues is not None

    def may_see(self, tenant: str, queue: str) -> bool:
        """Whether jobs of this tenant in this queue are any of its business."""
        grant = self.grant
        return grant.tenant in (None, tenant) and (grant.queues is None or queue in grant.queues)


ANYONE: Final = Holder(None, Grant(Role.ADMIN))
"""Who sends a request where no keys are asked for."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as its holder shows it. The id is no secret; what stands behind it is never shown again."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Key:
        """One that nobody can guess."""
        return cls(secrets.token_hex(16), secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def read(cls, text: str) -> Key | None:
        """The key that was written so; None if it can be none."""
        found = _TEXT.fullmatch(text)
        return cls(found[1], found[2]) if found else None

    @property
    def text(self) -> str:
        """What the holder keeps."""
        return f"fairlane_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is kept instead of the secret. A fast hash will do: nobody tries 2 ** 256 secrets."""
        return sha256(self.secret.encode()).hexdigest()

    def opens(self, digest: str | None) -> bool:
        """Whether `digest` is of this key; it takes the same time whatever the answer, and where there is none."""
        return compare_digest(self.digest.encode(), (digest or _NO_DIGEST).encode())
