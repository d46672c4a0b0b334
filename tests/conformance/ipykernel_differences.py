"""Tests of ipykernel that the Sandbox kernel does not pass, each with its reason.

``test_ipykernel_tests.py`` holds the kernel to this list: a test that fails and is not here fails ours, and so does one
that is here and passes. ``docs/ipykernel.md`` shows the list; ``python docs/generate.py`` writes it there.
"""

from __future__ import annotations

#: Reason, then the tests that differ for it.
DIFFERENCES: dict[str, tuple[str, ...]] = {}


def reasons() -> dict[str, str]:
    """The reason of each test, by its name (``test_kernel.py::test_raw_input``)."""
    return {name: reason for reason, names in DIFFERENCES.items() for name in names}
