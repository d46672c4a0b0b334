"""Which changes are ordinary content; every other one is applied only when the user names it.

Ordinary is what a person reads, runs or opens by their own will: data, documents, sources. Not ordinary is what a tool
on the user's machine runs or obeys although nobody asked it to. Because a list of such names always has gaps, whole
kinds are left out: every name that begins with a dot, whatever is executable and was not, everything in an environment
or a repository, whatever git's settings name, links that take the place of something, links of the user to folders, and
notebooks that the user has. ``OBEYED`` lists only what is left: names without a dot, at any depth.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property

from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: Patterns of names in small letters: of folders and files, and of files alone.
OBEYED_FOLDERS = (
    # Other version control; what Python, node and editors load from without being told.
    "cvs", "_darcs", "__pycache__", "site-packages", "dist-packages", "__pypackages__", "conda-meta", "node_modules",
    "bower_components", "sitecustomize*", "usercustomize*", "*.xcodeproj", "*.xcworkspace",
)  # fmt: skip
OBEYED = (
    # Programs, whatever their mode, and what is loaded in place of a source.
    "*.pth", "*.py[cod]", "pyvenv.cfg", "*.so", "*.so.*", "*.dylib", "*.dll", "*.exe", "*.com", "*.bat", "*.cmd",
    "*.ps1", "*.vbs", "*.scr", "*.lnk", "*.desktop", "desktop.ini", "autorun.inf", "*.class", "*.jar",
    # Builds, tests, packages and environments.
    "makefile", "makefile.*", "gnumakefile", "*.mk", "justfile", "taskfile*", "rakefile", "*.rake", "gemfile*",
    "*.gemspec", "guardfile", "vagrantfile*", "dockerfile*", "*.dockerfile", "containerfile*", "*compose*.y*ml",
    "procfile*", "podfile*", "snakefile*", "tiltfile", "earthfile", "setup.py", "setup.cfg", "pyproject.toml",
    "conftest.py", "noxfile.py", "toxfile.py", "tox.ini", "tox.toml", "pytest.ini", "pytest.toml", "mypy.ini",
    "pylintrc*", "pyrightconfig.json", "ruff.toml", "hatch.toml", "hatch_build.py", "dodo.py", "tasks.py", "fabfile.py",
    "sconstruct", "sconscript", "wscript", "waf", "pipfile*", "pixi.toml", "*.lock", "cmakelists.txt", "*.cmake",
    "cmake*presets.json", "meson*.build", "build", "build.rs", "build.py", "build.sh", "build.xml", "build.zig",
    "build.*js", "build.*ts", "configure", "configure.ac", "*.m4", "workspace", "*.bzl", "*.bazel", "*.gradle",
    "*.gradle.kts", "gradlew*", "mvnw*", "pom.xml", "*.sbt", "cargo.toml", "rust-toolchain*", "go.work", "go.mod",
    "package.swift", "pubspec.y*ml", "package*.json", "npm-shrinkwrap.json", "pnpm*.y*ml", "*.config.*js",
    "*.config.*ts", "*.conf.*js", "gulpfile*", "gruntfile*", "tsconfig*.json", "jsconfig*.json", "deno.json*",
    "bunfig.toml", "biome.json*", "nx.json", "turbo.json", "composer.json", "*.cabal", "stack.y*ml", "setup.hs",
    "dune", "dune-*", "mix.exs", "rebar.config*", "project.clj", "deps.edn", "*.nix", "devbox.json", "devenv.y*ml",
    "mise.*toml", "*.props", "*.targets", "*.*proj", "*.sln*", "nuget.config", "ansible.cfg", "lefthook*", "*gitconfig",
    # Servers that build or publish.
    "jenkinsfile*", "*pipelines*.y*ml", "appveyor.y*ml", "cloudbuild*.y*ml", "buildspec*.y*ml", "codemagic.y*ml",
    "netlify.toml", "vercel.json", "wrangler.toml", "wrangler.json*", "fly.toml", "renovate.json*", "action.y*ml",
    # Editors, and Jupyter, which reads its settings from the folder in which it is started.
    "*.code-workspace", "*.sublime-*", "*.iml", "*.ipr", "_vimrc", "_exrc", "jupyter*config*", "ipython*config*",
    # Agents.
    "agent*.md", "claude*.md", "gemini*.md", "qwen*.md", "codex*.md", "crush*.md", "crush.json", "copilot*.md",
    "opencode*.md", "opencode.json*", "warp.md", "conventions.md", "skill*.md", "llms*.txt", "*.instructions.md",
    "*.prompt.md", "*.chatmode.md", "*.mdc", "mcp*.json", "*mcp*config*.json",
)  # fmt: skip
_obeyed_folder = re.compile("|".join(map(fnmatch.translate, OBEYED_FOLDERS)))
_obeyed_file = re.compile("|".join(map(fnmatch.translate, OBEYED)))
#: Another spelling of a name that Windows' file systems make: ``CLAUDE~1.MD``.
_SHORT_NAME = re.compile(r".{1,6}~\d+(\..{0,3})?")
#: What a folder holds that is an environment, or which git takes for a repository, whatever the folder is called.
_MARKED_BY = (("pyvenv.cfg",), ("conda-meta",), ("bin/activate",), ("HEAD", "objects", "refs"), ("HEAD", "commondir"))
#: Bits of a mode that only the user adds to a file of theirs: all but the owner's to read and write. To a new file:
#: whatever makes it a program, or lets everybody write it.
_WIDER, _WIDER_NEW = 0o177, 0o113


class Obeyed:
    """Tells which of these changes need naming: by the place where they are, or by what they are."""

    def __init__(self, entries: Mapping[str, Kept], project: ProjectFolder) -> None:
        self._entries = entries
        self.project = project
        self._there = {_folded(path) for path, kept in entries.items() if not kept.is_gone}
        self._folders: dict[str, bool] = {}

    def by_place(self, path: str) -> bool:
        """Whether everything at this path needs naming, or the path is one that is hidden from programs."""
        if self._by_name(path):
            return True
        names = _folded(path).split("/")
        above = {"/".join(names[:depth]) for depth in range(1, len(names) + 1)}
        return bool(path) and not self._named.isdisjoint(above | ({""} if len(names) == 1 else set()))

    def by_change(self, path: str, kept: Kept) -> bool:
        """Whether a change needs its own name: a notebook or a link of the user, a new link there, a wider mode."""
        base = kept.base
        if base is not None and _folded(path).endswith(".ipynb"):
            return True
        if base is not None and stat.S_ISLNK(base.mode):
            # In place of a link to a folder, now or by the next apply, would be another folder of that name.
            if os.path.isdir(os.path.join(self.project.path, path)):
                return True
        elif base is not None and kept.type == SYMLINK:
            return True
        if kept.type == DIRECTORY:
            return base is not None and base.is_folder and bool(kept.mode & ~base.mode & 0o022)
        had = base is not None and stat.S_ISREG(base.mode)
        wider = kept.mode & ~base.mode & _WIDER if base is not None and had else kept.mode & _WIDER_NEW
        return kept.type == FILE and wider != 0

    def _by_name(self, path: str) -> bool:
        if not path:
            return False
        names, plain = path.split("/"), _folded(path).split("/")
        if any(not name or name.startswith(".") or _obeyed_folder.match(name) for name in plain) or is_hidden(path):
            return True
        if (_obeyed_file.match(plain[-1]) or _SHORT_NAME.fullmatch(plain[-1])) and not self._is_folder(path):
            return True
        return any(self._is_marked("/".join(names[:depth])) for depth in range(len(names) + 1))

    def _is_folder(self, path: str) -> bool:
        """Whether a path is a folder, for the user and by the changes."""
        kept, mark = self._entries.get(path), self.project.mark(path)
        had = mark.is_folder if mark is not None else kept is not None
        return had and (kept is None or kept.is_gone or kept.type == DIRECTORY)

    def _is_marked(self, folder: str) -> bool:
        """Whether a folder is an environment or a repository, or everybody may write into it, now or by the changes."""
        known = self._folders.get(folder)
        if known is None:
            prefix = f"{folder}/" if folder else ""
            known = any(all(self._is_there(prefix + name) for name in marks) for marks in _MARKED_BY)
            kept = self._entries.get(folder)
            known = known or (kept is not None and kept.type == DIRECTORY and kept.base is None and kept.mode & 2 != 0)
            self._folders[folder] = known
        return known

    def _is_there(self, path: str) -> bool:
        return _folded(path) in self._there or self.project.mark(path) is not None

    @cached_property
    def _named(self) -> frozenset[str]:
        """What git's settings name, and where links lead that a tool obeys: folded paths; "" for files of the root."""
        root = self.project.path
        paths = set(git_names(self.project))
        # Links in packages lead to the user's own sources in projects of several packages.
        links = [link for link in self.project.links() if _PACKAGES.isdisjoint(link.split("/")) and self._by_name(link)]
        paths |= {os.path.realpath(os.path.join(root, link)) for link in links}
        return frozenset(_folded(path[len(root) + 1 :]) for path in paths if f"{path}/".startswith(f"{root}/"))


_PACKAGES = frozenset(("node_modules", "site-packages"))
_IGNORED = frozenset(("Cc", "Cf", "Co", "Mn", "Me"))


def _folded(path: str) -> str:
    """Return a path as file systems may take it that know no case, no marks and no dots at the end of a name."""
    if not path.isascii() or not path.isprintable():
        signs = unicodedata.normalize("NFKD", path)
        path = "".join(sign for sign in signs if unicodedata.category(sign) not in _IGNORED)
    return "/".join(name.partition(":")[0].rstrip(". ") for name in path.casefold().split("/"))


# What git's settings name. Its files are read here: git itself would obey them.

_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"(?:\\.|[^"\\])*")?\s*\]')
_SETTING = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_WORD = re.compile(r"[^\s\"'=;|&()<>!,`]+")
#: Sections whose values are no paths and no commands.
_NAMES_OF_PEOPLE = ("user", "author", "committer", "branch", "color")
_PATH_KEYS = ("path", "file", "dir", "template")
_MOST_FILES, _MOST_BYTES = 500, 1 << 20


def git_names(project: ProjectFolder) -> Iterator[str]:
    """Yield the absolute paths that git's settings name: hooks, filters, monitors, includes, whatever the setting."""
    home = os.path.expanduser("~")
    shared = [os.environ.get("GIT_CONFIG_GLOBAL", ""), "/etc/gitconfig", f"{home}/.gitconfig"]
    shared += [os.path.join(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config")]
    above = project.path.split("/")
    places = {"/".join(above[:depth]) + "/.git" for depth in range(1, len(above) + 1)}
    project.hidden_files.find()
    inside = [path.removesuffix("HEAD").rstrip("/") for path in project.hidden_files.marked()]
    places |= {os.path.join(project.path, path) for path in inside}
    waiting: list[tuple[str, tuple[str, ...]]] = [(file, (project.path,)) for file in shared if file]
    for place in sorted(places):
        top = os.path.dirname(place)
        pointer = _read(place).removeprefix("gitdir:").strip()
        own = place if os.path.isdir(place) else os.path.join(top, pointer) if pointer else top
        common = os.path.join(own, _read(os.path.join(own, "commondir")).strip())
        waiting += [(os.path.join(own, "config.worktree"), (top, own)), (os.path.join(common, "config"), (top, common))]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting and len(seen) < _MOST_FILES:
        file, tops = waiting.pop()
        if (file, tops) in seen:
            continue
        seen.add((file, tops))
        bases = {*tops, os.path.dirname(file)}
        for key, value in _settings(_read(file)):
            # A command may find the top of the repository itself: $(git rev-parse --show-toplevel)/tools/x
            forms = [form for word in _words(key, value) for form in (word, word.lstrip("/"))]
            found = {os.path.join(base, form) for base in bases for form in forms}
            named = {*map(os.path.normpath, found), *map(os.path.realpath, found)}
            yield from named if key.endswith("hookspath") else named - bases
            if key.startswith("include"):
                waiting += [(path, tops) for path in sorted(found)]


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield ``section.key`` in small letters, and the value."""
    section = ""
    for line in text.replace("\\\n", "").splitlines():
        if (head := _SECTION.match(line)) is not None:
            section, line = head[1].casefold(), line[head.end() :]
        if (setting := _SETTING.match(line)) is not None:
            yield f"{section}.{setting[1].casefold()}", re.sub(r"\\(.)", r"\1", setting[2])


def _words(key: str, value: str) -> Iterator[str]:
    """Yield the words of a value that may be paths, and the whole value."""
    section = key.partition(".")[0]
    if section in _NAMES_OF_PEOPLE or (section == "alias" and "!" not in value):
        return
    whole = value.split(" #")[0].split(" ;")[0].strip().strip('"')
    words = [whole, *(one or other for one, other in _QUOTED.findall(value)), *_WORD.findall(value)]
    # A first word without a slash is a program of the PATH, a number or a switch; unless the key asks for a path.
    bare = () if key.endswith(_PATH_KEYS) else (whole, whole.split(" ")[0])
    for word in map(os.path.expanduser, words):
        if word and (word not in bare or "/" in word or "." in word) and "\0" not in word and len(word) < 4096:
            yield word


def _read(path: str) -> str:
    """Return the text of a regular file, its beginning if it is long; empty where there is none."""
    with suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.read(fd, _MOST_BYTES).decode(errors="surrogateescape")
        finally:
            os.close(fd)
    return ""
