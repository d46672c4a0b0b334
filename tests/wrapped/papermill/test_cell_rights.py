"""What cells of a stranger's notebook may ask of the Sandbox kernel when papermill runs it."""

from __future__ import annotations

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.wrapped.papermill.engine import check_cells


@pytest.mark.parametrize(
    "cell",
    [
        "%%sandbox command --mount /etc:/hostetc\nhead -c 26 /hostetc/shadow",
        "%sandbox --mount /:/h:rw",
        "# first a remark\n%sandbox --mount /:/h:rw\nprint(1)",
        "%%sandbox --allow-net example.org\n1",
        "%sandbox allow example.org",
        "%sandbox allow once ./data.csv",
        "%sandbox --here=/",
        "%sandbox --policy build",
        "%sandbox reset --mount /:/h:rw",
        "%sandbox restart --keep --mount /:/h:rw",
        "%sandbox --gpu all",
        "%%sandbox --python /usr/bin/python3\n1",
        "%sandbox save x",
        "%sandbox load x",
        "%sandbox apply",
        "%sandbox autosave 5m",
        "%sandbox functions f",
        "%sandbox recover",
        "%sandbox discard",
        "%sandbox --gpu-memory 4G",
        "%sandbox --memory 64G",
        "%%sandbox --timeout 10h\n1",
        "%sandbox --processes 5000",
        "%sandbox --disk 100G",
    ],
)
def test_a_cell_gives_itself_no_right_and_no_higher_limit(cell):
    with pytest.raises(InvalidRequest, match="code cell 2"):
        check_cells(["x = 1", cell], {})


@pytest.mark.parametrize(
    "cell",
    ["x = 1", "%%sandbox javascript\n1", "%sandbox --timeout 5s --memory 128M", "%sandbox undo", "%%sandbox --session b\n1",
     "print('%sandbox --mount /:/h')", "%sandbox no-such-command"],
)  # fmt: skip
def test_a_cell_may_lower_limits_and_choose_languages_and_sessions(cell):
    check_cells([cell], {})


def test_the_limits_of_the_command_line_are_the_most():
    check_cells(["%sandbox --memory 3G --timeout 2m"], {"memory": "4G", "timeout": "120s"})
    with pytest.raises(InvalidRequest, match="sandbox_memory"):
        check_cells(["%sandbox --memory 5G"], {"memory": "4G"})
