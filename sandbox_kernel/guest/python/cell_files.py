"""The name under which a cell is compiled, as in ipykernel: warnings, syntax errors and ``co_filename`` show it.

No such file exists. Libraries (joblib, for one) know code of a notebook by names of this form.
"""

from __future__ import annotations

import binascii
import os

CELL_FILES = "/tmp/ipykernel_"
SEED = 0xC70F6907
#: Longer cells, in bytes, get a number that is cheaper to compute than ipykernel's.
_LONG = 8192


def cell_file(raw_code: str, code: str, number: int) -> str:
    """Return the name for a cell: the same for the same text, as long as the session's process is the same."""
    data = raw_code.encode("utf-8", "surrogatepass")
    return f"{CELL_FILES}{os.getpid()}/{murmur2(data, SEED) if len(data) <= _LONG else binascii.crc32(data)}.py"


def murmur2(data: bytes, seed: int) -> int:
    """Return the 32-bit MurmurHash2 of some data, as JupyterLab computes it."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    value = seed ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        value = value * m & mask ^ (k ^ k >> 24) * m & mask
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * m & mask
    value = (value ^ value >> 13) * m & mask
    return value ^ value >> 15
