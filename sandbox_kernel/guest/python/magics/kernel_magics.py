"""Magics that ipykernel adds to IPython. What they would do outside the sandbox is said in a sentence instead."""

from __future__ import annotations

import os

from IPython.core import page
from IPython.core.error import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SAID = {
    "autosave": "%autosave changes nothing here: your front end saves the notebook as its own settings say",
    "connect_info": "%connect_info has nothing to show: the kernel's connection stays outside of the sandbox",
    "edit": "%edit opens no editor: files of the sandbox are not on your computer. %load FILE puts one into the cell, "
    "and %%writefile FILE writes the cell to it",
    "qtconsole": "%qtconsole opens no window: there is no screen inside the sandbox",
    "subshell": "%subshell has nothing to list: a session runs one cell at a time",
}


class Sentence:
    """A magic that prints one sentence."""

    def __init__(self, sentence: str) -> None:
        self._sentence = self.__doc__ = sentence

    def __call__(self, line: str) -> None:
        """Print it, whatever the line says."""
        print(self._sentence)


def add_magics(shell: Any) -> None:
    """Give a shell the magics of ipykernel that IPython's own shell lacks or does otherwise."""

    def less(name: str) -> None:
        """Show a file in the pager; Python with its colours."""
        if not name:
            raise UsageError("Missing filename.")
        with open(os.path.expanduser(name), encoding="utf-8", errors="replace") as file:
            text = file.read()
        page.page(shell.pycolorize(text) if name.endswith(".py") else text)

    def man(name: str) -> None:
        """Show the manual page of a command in the pager."""
        page.page(shell.getoutput(f"man {name} | col -b", split=False))

    def clear(line: str) -> None:
        """Clear a terminal; pages show nothing of it."""
        shell.system("clear")

    magics = {"less": less, "more": less, "man": man, "clear": clear}
    said = {name: Sentence(sentence) for name, sentence in _SAID.items()}
    for name, function in {**magics, **said, "ed": said["edit"]}.items():
        shell.register_magic_function(function, "line", name)
