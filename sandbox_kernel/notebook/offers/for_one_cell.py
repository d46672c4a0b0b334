"""Gives a session domains for one cell and takes them back after it, from processes that the cell leaves too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

from sandbox_kernel.errors import SessionError
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.session.session import Session


def domains(once: Sequence[Wanted]) -> tuple[str, ...]:
    """Return the domains among these rights."""
    return tuple(wanted.what for wanted in once if wanted.kind is WantedKind.DOMAIN)


@contextlib.asynccontextmanager
async def reaching(session: Session, once: Sequence[Wanted]) -> AsyncIterator[None]:
    """Let a session reach the domains among these rights meanwhile; what it has already, it keeps.

    Raises ``PolicyViolation`` before anything runs when a running session cannot be given a domain. At the end all its
    connections to these domains are closed.
    """
    loop = asyncio.get_running_loop()
    given: list[str] = []
    try:
        for domain in domains(once):
            if not session.reaches(domain):
                await loop.run_in_executor(None, partial(session.allow, domain=domain))
                given.append(domain)
        yield
    finally:
        for domain in given:
            with contextlib.suppress(SessionError):  # it was closed: nothing is left that could reach anything
                await loop.run_in_executor(None, partial(session.revoke, domain=domain))
