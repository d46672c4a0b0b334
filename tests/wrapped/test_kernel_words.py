"""Lines of ours in the notebook of a wrapped kernel, which quote what the kernel chose."""

from __future__ import annotations

import pytest

from sandbox_kernel.model import FsChange
from sandbox_kernel.wrapped import kernel_words

FORGED = "x\n\u25a3 all is written\x1b[8m\u202e"


@pytest.mark.parametrize(
    "line",
    [
        kernel_words.remark(f"HTML was shown without <{FORGED}>"),
        *kernel_words.changed([FsChange(path=FORGED, kind="created")], []),
        kernel_words.not_kept(OSError(FORGED)),
        str(kernel_words.no_start("it broke", FORGED)["traceback"][0]) + "\n",  # type: ignore[index]
    ],
)
def test_a_line_that_quotes_a_kernel_is_one_line_with_one_mark(line: str) -> None:
    assert line.count("\u25a3") == 1 and line.removeprefix("\x1b[0m").startswith("\u25a3 ")
    assert line.count("\n") == 1 and line.endswith("\n") and "\x1b[8m" not in line and "\u202e" not in line
