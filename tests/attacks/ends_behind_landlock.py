"""Where hostile programs end otherwise behind Landlock than behind bubblewrap, and why. All others end alike."""

import os
from dataclasses import dataclass, replace
from typing import Any

from sandbox_kernel.jail.accounting.meter import counts_processes
from tests.attacks.harness import Attack


@dataclass(frozen=True)
class Difference:
    """Why an attack ends otherwise, and what is expected of it instead."""

    why: str
    instead: dict[str, Any]


#: As the program of that name, but it does not give back at once what it took.
HOLDS_DELETED = (
    "import os, time\nheld = []\nfor i in range(100):\n  f = open('x', 'wb'); os.unlink('x')\n"
    "  f.write(b'x' * (1 << 20)); f.flush(); held.append(f)\ntime.sleep(60)"
)

#: As the program of that name, but for the capability that the tier needs and Landlock keeps to the allowed paths.
BUT_FOR_READING = ("if int(s['CapEff'], 16):", "if int(s['CapEff'], 16) & ~6:")

DIFFERENCES: dict[str, Difference] = {
    "R07": Difference(
        "a file in memory is a file: without a file system of its own the limit of one file is the disk limit; where "
        "memory is only watched there are no such files, and the program takes other shared memory",
        {"status": ("failed", "memory_exceeded"), "limit": None},
    ),
    "R08": Difference(
        "no mounts: /tmp and /dev/shm are the host's, so they are closed; temporary files go where TMPDIR says",
        {"says": ("Permission denied",), "never_says": ("copied",)},
    ),
    "R09": Difference(
        "the disk is the host's: one file is stopped by RLIMIT_FSIZE, which says so in other words",
        {"says": ("File too large",)},
    ),
    "R10": Difference(
        "the disk is the host's: many files are stopped by the watchdog, which ends the run",
        {"status": ("killed",), "says": ()},
    ),
    "R11": Difference(
        "the disk is the host's: the watchdog counts files by looking, which takes its time",
        {"status": ("killed",)},
    ),
    "R14": Difference(
        "Landlock asks every folder above at each step down, so that a deep tree takes longer with every level",
        {"status": ("ok", "timeout"), "timeout": 2.0},
    ),
    "X12": Difference(
        "the disk is the host's: files without a name are found at whoever holds them, which ends the run",
        {"status": ("killed",), "limit": "disk", "says": (), "never_says": (), "code": HOLDS_DELETED, "timeout": 30.0},
    ),
    "F09": Difference(
        "no user namespace: the program is who the host is, or a user of its own with a number that nobody has",
        {"says": ()},
    ),
    "S08": Difference(
        "no mounts: terminals are the host's, so that none can be opened",
        {"status": ("failed",), "says": ("out of pty devices",)},
    ),
    "N03": Difference(
        "no network namespace: no socket can be opened at all",
        {"status": ("failed",), "says": ("Address family not supported",)},
    ),
    "N12": Difference(
        "no network namespace: no socket can be opened at all",
        {"status": ("failed",), "says": ("Address family not supported",)},
    ),
}

if os.geteuid() != 0:
    DIFFERENCES["X14"] = Difference(
        "no user of its own: a folder that the program closes is closed to the host too, and counts as full",
        {"limit": "disk"},
    )

if os.geteuid() != 0 and not counts_processes():
    crowd = "no user of its own and no control group: processes are counted by the watchdog, which ends the run"
    DIFFERENCES["R01"] = Difference(crowd, {"status": ("killed",), "says": ()})
    DIFFERENCES["R02"] = Difference(crowd, {"status": ("killed", "timeout", "failed"), "says": ()})


def on_landlock(attack: Attack) -> Attack:
    """The same attack with what must come of it in this tier."""
    difference = DIFFERENCES.get(attack.id.partition("-")[0])
    if attack.id.startswith("Y04"):
        return replace(attack, code=attack.code.replace(*BUT_FOR_READING))
    return replace(attack, **difference.instead) if difference is not None else attack
