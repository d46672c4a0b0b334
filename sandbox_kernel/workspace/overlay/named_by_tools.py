"""Finds what hooks, git's settings and dot files of the user name: changes of that need naming.

Their texts are split into plain words, at all that is no letter, digit, ``_``, ``-`` or ``.``, and at dots as well. A
file is named by its name or, if it is a source, by its stem, in whatever folder. A folder is named, with all in it, by
any word of a hook but commands (the first word of a line or command, without a slash), options, and folders of an
absolute path (``/usr/bin``): ``src`` counts, because a hook that says it may run it. Settings of git, agents and
editors name folders only in paths and dotted names. Of texts that are neither hooks nor sources count lines with a path
or a dotted name, and those that import or start an interpreter. Files that are named are read in turn, once.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import unicodedata
from contextlib import suppress
from itertools import islice

from sandbox_kernel.workspace.overlay.project import ProjectFolder, covered

#: The most repositories whose hooks are read; files and words that are read, and folders that are listed, in all.
_MOST_TOPS, _MOST_FILES, _MOST_WORDS, _MOST_FOLDERS = 50, 500, 50_000, 1000
#: Bytes of one file, and files of one folder, that are read; entries of a folder that are looked at.
_MOST_BYTES, _MOST_IN_FOLDER, _MOST_LISTED = 1 << 18, 100, 20_000
#: Sources that other sources name without their suffix.
_SOURCES = ("py", "js", "mjs", "cjs", "ts", "sh", "bash", "rb", "r", "lua", "pl", "pm", "php")
#: Words that nearly every text has, and that mean no file.
_OF_ALL = {"", "__init__.py", "__init__", "__main__", "readme.md", "readme", "python", "python3", "sh", "bash", "env"}
#: Settings of programs that run hooks.
_RUNS_HOOKS = re.compile(r"\.?(pre-commit|lefthook|husky|overcommit|simple-git-hooks|githooks)\b.*")
#: Where tasks are written down that hooks start by their names: ``npm run lint``, ``make lint``.
_TASKS = (
    *("package.json", "composer.json", "deno.json*", "[Mm]akefile", "GNUmakefile", "[Jj]ustfile", "[Tt]askfile.y*ml"),
    *("pyproject.toml", "tox.ini", "noxfile.py", "dodo.py", "[Rr]akefile"),
)
#: Dot files that name files which nobody runs because of that; what only servers run; caches, outputs; secrets.
_NAME_NOTHING_RUN = re.compile(
    r"\.(git|hg|svn|.*ignore|gitattributes|gitmodules|mailmap|coverage.*|flake8|.*cache|env|env\..*|tox|nox|venv|yarn"
    r"|github|gitlab|circleci|ipynb_checkpoints|virtual_documents|next|nuxt|svelte-kit|pnp\..*|\.?)|.*\.sample"
)
#: What names nothing that is run: web addresses, and what checkers look at that load no code of it; in YAML which files
#: are looked at, and keys; in JSON keys; in git's settings headings, people, branches and remotes.
_LOOKED_AT = {
    "": r"\b(?:https?|ssh|git)://[^\s\"'<>)]*|^[ ]*(?:ruff (?:check|format)|black|isort|shellcheck) [\w ./-]+$",
    "yaml": r"^([ ]*)(- )?(?:default_)?(?:files(?=: *[\"']?[\^(\\])|exclude|types\w*|name|id|repo|rev|description|glob"
    r"|stages|language\w*)[ ]*:.*(?:\n\1(?(2)  |)[ ]+.*)*|^[ ]*(?:- )?[\w-]+:(?=\s)",
    "json": r"\"[^\"\\\n]+(?<![jt]s|py|sh|rb)\"\s*:",
    "git": r"^[ \t]*\[[^\n]*\][ \t]*$|^[ \t]*(?:name|email|(?:push)?url|fetch|merge)[ \t]*=(?!.*::).*",
}
_WORD = re.compile(r"(?:[\w.-]|[^\x00-\x7f])+")
_ABSOLUTE = re.compile(r"(?<![^\s=:(!])~?/(?:\\ |[^\s\"'`;|&()<>,])*|(?<=[\"'])(?P<quoted>~?/[^\"'\n]*)")
_GIT_PLACE = re.compile(r"\b(hooksPath|path)\s*=\s*(?:\"([^\"\n]+)|([^\s\"#;][^\"\n#;]*))", re.IGNORECASE)
#: Lines of settings that may name what is run; names of commands in a hook; folders in a path or module.
_LINE = re.compile(
    r"(?m)^.*(?:(?<!<)[/.]\w|\b(?:python[\d.]*|node|ruby|perl|php|sh|bash|use)\s|import(?:\s*\([^)]*)?|require|library"
    r"|\s-[mMrI]).*"
)
_COMMAND = re.compile(
    r"(?m)(?:^|[;&|({`#!]|[:=][ \t])[ \t]*(?:(?:exec|env|then|do|else|elif|if)[ \t]+)*[\w-]+(?=[ \t]+\S)"
)
_FOLDER = re.compile(r"[\w-]+(?=[/.]\w)")


class NamedByTools:
    """What hooks, settings and dot files of the user name, when this is made; bounded."""

    def __init__(self, project: ProjectFolder) -> None:
        #: Folded words of all texts, and those that name folders; folded paths of hooks and of their folders.
        self._words: set[str] = set()
        self._folders: set[str] = set()
        self._places: set[str] = set()
        tops, waiting, hooks, git = _run_by_themselves(project)
        start = f"{project.path}/"
        seen: set[str] = set()
        later: list[str] = []
        while waiting and len(seen) < _MOST_FILES and len(self._words) < _MOST_WORDS:
            file = os.path.realpath(waiting.pop())
            text, base = _read(file) if file not in seen else "", os.path.dirname(file)
            seen.add(file)
            for key, *value in _GIT_PLACE.findall(text)[:_MOST_IN_FOLDER]:
                path = os.path.expanduser("".join(value).strip())
                if key.lower() != "path":
                    files = [at for top in (*tops, base) for at in _files_at(os.path.join(top, path))]
                    hooks.update(map(os.path.realpath, files))
                    waiting += files
                elif file in git:
                    waiting.append(os.path.join(base, path))
                    git.add(os.path.realpath(waiting[-1]))
            later += [os.path.expanduser(path[0]) for path in islice(_ABSOLUTE.finditer(text), _MOST_IN_FOLDER)]
            kind = "hook" if file in hooks else "git" if file in git else ""
            text = _what_counts(text.replace(start, "./"), file, kind)
            self._words |= _words(text)
            if kind == "hook":
                self._folders |= _words(_COMMAND.sub(" ", text))
                # What a hook imports is looked for beside it.
                places = [file] if os.path.basename(file).startswith(".") else [file, base]
                self._places.update(folded(path.removeprefix(start)) for path in places if path.startswith(start))
            elif kind or "/.claude/" in file or "/.vscode/" in file:
                self._folders |= _words(" ".join(_FOLDER.findall(text)))
        self._folders.discard("")
        self._words -= _OF_ALL
        listed = list(dict.fromkeys((*tops, *map(os.path.dirname, seen))))
        starts = set(listed)
        for folder in islice(listed, _MOST_FOLDERS):
            above = "" if folder in starts else f"{os.path.basename(folder)}/"
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in islice(entries, _MOST_LISTED):
                    if self.has(above + entry.name):
                        (listed if entry.is_dir() else later).append(entry.path)
        for file in islice(dict.fromkeys(later), _MOST_FILES):
            if file not in seen and len(self._words) < _MOST_WORDS:
                self._words |= _words(_what_counts(_read(file), file)) - _OF_ALL

    def has(self, path: str) -> bool:
        """Whether a file is named, or a folder that it lies in."""
        names = folded(path).split("/")
        if covered("/".join(names), self._places) or any(_is_said(name, self._folders) for name in names):
            return True
        stem, _, suffix = names[-1].rpartition(".")
        # A folder that is run or imported is run by these.
        stems = [stem, *names[-2:-1]] if stem in ("__init__", "__main__", "index") else [stem]
        forms = [names[-1], *stems] if suffix in _SOURCES else names[-1:]
        return any(_is_said(form, self._words) for form in forms)


def _run_by_themselves(project: ProjectFolder) -> tuple[list[str], list[str], set[str], set[str]]:
    """Return the folders of repositories, dot files of the user, and of these hooks and settings of git."""
    home, root = os.path.expanduser("~"), project.path
    dotted = [os.path.join(root, path) for path in project.hidden_files.find()]
    marked = [os.path.join(root, path) for path in project.hidden_files.marked()]
    repositories = [path.removesuffix("/HEAD") for path in marked if os.path.basename(path) in (".git", "HEAD")]
    above = ["/".join(root.split("/")[:depth]) for depth in range(1, root.count("/") + 1)]
    outer = [path for path in above if os.path.lexists(f"{path}/.git")]
    tops = [root, *outer, *map(os.path.dirname, repositories)][:_MOST_TOPS]
    dotted += [path for top in tops for name in (".*", "lefthook*") for path in glob.glob(f"{glob.escape(top)}/{name}")]
    files = [file for path in dotted for file in _files_at(path)]
    hooks = [file for file in files if any(map(_RUNS_HOOKS.fullmatch, file.split("/")))]
    git = ["/etc/gitconfig", os.environ.get("GIT_CONFIG_GLOBAL") or f"{home}/.gitconfig", f"{home}/.gitconfig"]
    git.append(os.path.join(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config"))
    for place in (*repositories, *(f"{path}/.git" for path in (*outer, root))):
        pointer = _read(place).removeprefix("gitdir:").strip()
        own = os.path.join(os.path.dirname(place), pointer) if pointer else place
        common = os.path.join(own, _read(os.path.join(own, "commondir")).strip())
        hooks += _files_at(f"{common}/hooks")
        git += [f"{own}/config.worktree", f"{common}/config"]
    if hooks:
        files += [path for top in tops for name in _TASKS for path in glob.glob(f"{glob.escape(top)}/{name}")]
    # The last are read first: git's settings say what else is a hook.
    return tops, [*files, *hooks, *git], set(map(os.path.realpath, hooks)), set(map(os.path.realpath, git))


def _is_said(name: str, words: set[str]) -> bool:
    parts = _WORD.findall(name)
    return bool(parts) and words.issuperset(parts)


def _what_counts(text: str, file: str, kind: str = "") -> str:
    """Return what of a text may name files that are run."""
    suffix = "git" if kind == "git" else file.rpartition(".")[2].replace("yml", "yaml")
    looked_at = f"(?mi){_LOOKED_AT.get(suffix, '(?!)')}|{_LOOKED_AT['']}"
    text = re.sub(looked_at, " ", text.replace("\\\n", " "))
    # Of an absolute path only the name of the file; behind a quote it may follow a variable.
    text = _ABSOLUTE.sub(lambda path: path[0] if path["quoted"] else f" {os.path.basename(path[0])}", text)
    return text if kind == "hook" or suffix in _SOURCES else "\n".join(_LINE.findall(text))


def _words(text: str) -> set[str]:
    """Return the folded words of a text, dotted ones in parts too; and what an option has behind its letter."""
    found = {folded(word) for word in set(_WORD.findall(text))}
    found |= {word[end:] for word in found if word.startswith("-") and word[1:2] != "-" for end in (1, 2)}
    return {part for word in found for part in (word, word.strip("."), *word.split("."))}


def _files_at(path: str) -> list[str]:
    """Return a file, or the files below a folder, bounded; none for what names nothing that is run."""
    if _NAME_NOTHING_RUN.fullmatch(os.path.basename(path)):
        return []
    below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [path, *(file for file in islice(below, _MOST_IN_FOLDER) if not file.endswith(".sample"))]


def _read(path: str) -> str:
    """Return the text of a regular file, its beginning if it is long; empty where there is none, or no text."""
    with (
        suppress(OSError, ValueError),
        open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file,
    ):
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            text = file.read(_MOST_BYTES).decode(errors="surrogateescape")
            return "" if "\0" in text else text
    return ""


_IGNORED = frozenset(("Cc", "Cf", "Co", "Mn", "Me"))


def folded(path: str) -> str:
    """Return a path as file systems may take it that know no case, no marks and no dots at the end of a name."""
    if not path.isascii() or not path.isprintable():
        signs = unicodedata.normalize("NFKD", path)
        path = "".join(sign for sign in signs if unicodedata.category(sign) not in _IGNORED)
    return "/".join(name.partition(":")[0].rstrip(". ") for name in path.casefold().split("/"))
