"""What tools on the user's machine obey or run although nobody asked them to: applied only when the user names it.

Hooks and settings of git, editors, shells, servers and agents; notebooks, because the lines in them give rights and
name the kernel that runs them. A source file is not among them: it runs when somebody runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.project_folder import ProjectFolder

#: Names at any depth, in small letters.
OBEYED = frozenset(
    (
        *(".git", ".gitmodules", ".hg", ".hgrc", ".svn", ".jj", ".husky", ".githooks", ".github", ".gitlab-ci.yml"),
        *(".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"),
        *(".vscode", ".vs", ".idea", ".fleet", ".zed", ".devcontainer", ".devcontainer.json", ".settings"),
        *(".exrc", ".vimrc", ".nvimrc", ".lvimrc", ".nvim.lua", ".dir-locals.el", ".gdbinit", ".lldbinit"),
        *(".pylintrc", "pylintrc", ".yarnrc.yml", ".yarnrc", ".yarn", ".pnp.cjs", ".pnp.loader.mjs", ".cargo"),
        *(".envrc", ".mise.toml", "mise.toml", ".mise", ".rtx.toml", ".autoenv", ".autoenv.zsh", ".rvmrc"),
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc", ".cshrc", ".tcshrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".login", ".kshrc", ".rprofile"),
        *(".jupyter", ".ipython", ".pdbrc", ".pythonrc", "pyvenv.cfg", "sitecustomize.py", "usercustomize.py"),
        *(".claude", ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".codex", ".gemini", ".mcp.json"),
        *("agents.md", "claude.md", "gemini.md", ".aider.conf.yml"),
    )
)
#: Patterns of a name: packages that a Python loads at its start, workspaces of editors, settings of Jupyter, which its
#: programs read from the folder in which they are started.
_OBEYED_NAME = re.compile(r".*\.pth|.*\.code-workspace|(jupyter|ipython)(_\w+)?_config\.(py|json)")
_NOTEBOOK = ".ipynb"
#: What makes git take a folder for a repository whose settings it obeys, whatever the folder is called.
_REPOSITORY = ("HEAD", "objects", "refs")


class Obeyed:
    """Tells which of these changes need naming."""

    def __init__(self, entries: Mapping[str, Kept], project: ProjectFolder) -> None:
        self._entries = entries
        self.project = project
        self._repositories: dict[str, bool] = {}

    def has_such_name(self, path: str) -> bool:
        """Whether a tool of the host would obey a change at this path, or it is one that is hidden from programs."""
        if not path:
            return False
        parts = path.casefold().split("/")
        if not OBEYED.isdisjoint(parts) or _OBEYED_NAME.fullmatch(parts[-1]) is not None or is_hidden(path):
            return True
        return self._is_known_notebook(path, parts[-1]) or self._lies_in_repository(path)

    def _is_known_notebook(self, path: str, name: str) -> bool:
        """Whether the user has this notebook already, and opens it as their own."""
        kept = self._entries.get(path)
        return name.endswith(_NOTEBOOK) and kept is not None and kept.base is not None and not kept.is_gone

    def _lies_in_repository(self, path: str) -> bool:
        names = path.split("/")
        return any(self._is_repository("/".join(names[:depth])) for depth in range(len(names) + 1))

    def _is_repository(self, folder: str) -> bool:
        known = self._repositories.get(folder)
        if known is None:
            prefix = f"{folder}/" if folder else ""
            known = all(self._is_there(prefix + name) for name in _REPOSITORY)
            self._repositories[folder] = known
        return known

    def _is_there(self, path: str) -> bool:
        kept = self._entries.get(path)
        return not kept.is_gone if kept is not None else self.project.mark(path) is not None
