"""Hostile programs, one table for each wall that they try. Each program is bounded by itself.

An identifier of a letter and two digits is a line of the project's attack list (``titles.py``); ``X`` and ``Y`` with a
name are programs that the list does not have. ``tests/attacks/walls`` runs them.
"""

from __future__ import annotations

from tests.attacks.harness import Attack
from tests.attacks.programs import compilers, counts, disk, files, kills, memory, network, output, syscalls, time

PROGRAMS: tuple[Attack, ...] = (
    *memory.PROGRAMS,
    *disk.PROGRAMS,
    *files.PROGRAMS,
    *counts.PROGRAMS,
    *time.PROGRAMS,
    *kills.PROGRAMS,
    *syscalls.PROGRAMS,
    *network.PROGRAMS,
    *output.PROGRAMS,
    *compilers.PROGRAMS,
)
#: The programs of the attack list.
LISTED = tuple(program for program in PROGRAMS if program.listed)
