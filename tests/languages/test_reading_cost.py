"""Code that is looked at on the host, before anything runs, is looked at once: its length cannot stop the host."""

import pytest

from sandbox_kernel.languages import interpreters
from sandbox_kernel.languages.rust import wrap

#: Read anew from each of its marks, each of these takes hours, in which no other thread of the host runs.
_MANY = 500_000


@pytest.mark.parametrize(
    "code",
    ['x"' + '\\"' * _MANY, '"\\' * _MANY, "'" + "\\'" * _MANY, "`" + "\\`" * _MANY, "/*" * _MANY],
    ids=["double", "escaped", "single", "template", "comment"],
)
def test_what_is_never_closed_is_read_once(code: str) -> None:
    assert wrap(code) != code


def test_empty_lines_before_a_package_are_read_once() -> None:
    assert interpreters._PACKAGE.search(b"\n" * _MANY) is None
    assert interpreters._PACKAGE.search(b"\n" * _MANY + b" package main\n") is not None
