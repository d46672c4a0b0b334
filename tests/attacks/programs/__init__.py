"""Hostile programs, one table for each wall that they try. Each program is bounded by itself.

An identifier of a letter and two digits is a line of the project's attack list (``titles.py``); ``X`` and ``Y`` with a
name are programs that the list does not have. ``tests/attacks/walls/test_programs.py`` runs them.
"""

from tests.attacks.harness import Attack
from tests.attacks.programs import compilers, counts, disk, files, kills, memory, network, output, syscalls, time

TABLES = tuple(
    wall.PROGRAMS for wall in (memory, disk, files, counts, time, kills, syscalls, network, output, compilers)
)
PROGRAMS: tuple[Attack, ...] = tuple(program for programs in TABLES for program in programs)
#: The programs of the attack list.
LISTED = tuple(program for program in PROGRAMS if program.listed)
