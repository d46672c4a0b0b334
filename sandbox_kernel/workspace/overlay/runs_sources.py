"""Finds what of the user's may run sources of a folder unasked: hooks, git's settings, settings of editors and agents.

What these run is not guessed: a hook discovers files (``pytest``) and computes names. Where one is there, no source is
applied unless the user names it. Few dot files and settings of git are known to run nothing (``_INERT``,
``_INERT_KEYS``, ``_INERT_VALUES``); whatever else there is counts.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from sandbox_kernel.workspace.overlay.project import ProjectFolder

#: The most repositories and settings that are read, and bytes of one file: beyond that, something counts as found.
_MOST_READ, _MOST_BYTES = 1000, 1 << 20
#: Dot files that run nothing here: of git and servers, caches and environments, versions, formatters, secrets, data.
_INERT = re.compile(
    r"\.(git|jj|svn|.*ignore|gitattributes|gitmodules|gitkeep|keep|placeholder|mailmap|git-blame-ignore-revs|github"
    r"|gitlab.*|gitea|forgejo|circleci|travis\.yml|readthedocs\.ya?ml|codecov\.ya?ml|nojekyll|editorconfig|coverage.*"
    r"|.*cache|tox|nox|venv|hypothesis|ipynb_checkpoints|virtual_documents|yarn|pnp\..*|next|nuxt|svelte-kit|buildinfo"
    r"|doctrees|quarto|Rproj\.user|.*-version|tool-versions|nvmrc|ruff\.toml|isort\.cfg|style\.yapf|codespellrc"
    r"|clang-format|rustfmt\.toml|markdownlint\.(json|ya?ml)|yamllint(\.ya?ml)?|bumpversion\.(cfg|toml)|env|env\..*"
    r"|netrc|pgpass|.*history|DS_Store|_.*|z(array|group|attrs|metadata)|.*\.crc|nfs.*|fuse_hidden.*|~lock\..*|#.*"
    r"|.*\.sw[a-p]|sandbox-kernel-apply-.*)"
)
#: Settings of programs that run what they are told, without a dot.
_UNDOTTED = re.compile(r"lefthook.*|mise.*\.toml|devbox\.json|.*\.(code-workspace|sublime-project)")
#: Settings of git that start no program, ``section.key``; all keys of some sections.
_INERT_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|worktree|sparsecheckout.*|longpaths|untrackedcache|excludesfile|attributesfile)"
    r"|(user|author|committer|branch|init|pull|push|extensions|color|rerere|index|feature|advice|commit|tag|alias|gui)\..*"
    r"|remote\.(url|pushurl|fetch|push|prune|tagopt|mirror|promisor|partialclonefilter|gh-resolved|pushdefault)"
    r"|submodule\.(url|active|branch|ignore|path|shallow|recurse|fetchrecursesubmodules)|lfs\.(url|access|locksverify)"
    r"|diff\.(algorithm|renames|colormoved|submodule)|merge\.(conflictstyle|ff)|gpg\.format|url\.(push)?insteadof"
)
#: Values that name no program of a folder: numbers, helpers that come with git, LFS.
_INERT_VALUES = re.compile(
    r"(|true|false|yes|no|on|off|none|merge|rebase|checkout|\d+[kmg]?|store|cache|osxkeychain|libsecret|manager(-core)?"
    r"|/dev/null|!?(/usr(/local)?/bin/)?gh auth git-credential|git-lfs (clean|smudge)( --skip)? -- %f"
    r"|git-lfs filter-process( --skip)?)(\s*[#;].*)?",
    re.IGNORECASE,
)
#: Of settings that hold for all repositories of the user those count that git obeys in each.
_OF_ALL = re.compile(r"core\.(hookspath|fsmonitor|gitproxy|.*command)|(filter|diff|merge|hook|credential)\..*")
#: There a single word, or the path of a program outside of the folder, is the user's own choice.
_OWN_PROGRAM = re.compile(r"[\w.-]+|\"?!?[~/][^\s;|&$(){}]*\"?( -?[\w-]+)*")
_HEADING = re.compile(r'\[\s*([\w-]+)(?:\.[\w.-]+)?\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')
#: What git calls hooks, and lines of the hooks that ``git lfs install`` writes.
_HOOK = re.compile(r"[a-z0-9-]+")
_OF_LFS = re.compile(r"#.*|command -v git-lfs .*|git lfs [\w-]+ \"\$@\"|")


def runs_sources(project: ProjectFolder) -> str:
    """Return the path of something of the user's that may run sources of a folder unasked; empty for nothing."""
    return next(_found(project), "").removeprefix(f"{project.path}/")


def _found(project: ProjectFolder) -> Iterator[str]:
    root, home = project.path, os.path.realpath(os.path.expanduser("~"))
    hidden, marked = project.hidden_files.find(), project.hidden_files.marked()
    above = ["/".join(root.split("/")[:depth]) for depth in range(2, root.count("/") + 1)]
    outer = [path for path in above if os.path.lexists(f"{path}/.git")]
    names = [path for path in project.hidden_files.dotted() if not _INERT.fullmatch(os.path.basename(path))]
    yield from (os.path.join(root, path) for path in names)
    for top in (root, *outer):
        for name in _listed(top):
            is_dotted = name.startswith(".") and top not in (root, home) and not _INERT.fullmatch(name)
            if is_dotted or _UNDOTTED.fullmatch(name):
                yield os.path.join(top, name)
    heads = [os.path.join(root, path) for path in (*hidden, *marked) if os.path.basename(path) in (".git", "HEAD")]
    places = dict.fromkeys(path.removesuffix("/HEAD") for path in (*heads, *(f"{top}/.git" for top in (root, *outer))))
    own: list[str] = []
    for place in places:
        pointer = read_text(place).removeprefix("gitdir:").strip() if os.path.isfile(place) else ""
        folder = os.path.join(os.path.dirname(place), pointer) if pointer else place
        common = os.path.join(folder, read_text(f"{folder}/commondir").strip()).rstrip("/")
        own += [f"{common}/config", f"{folder}/config.worktree"]
        yield from _hooks(f"{common}/hooks")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    shared = ["/etc/gitconfig", f"{home}/.gitconfig", f"{config}/git/config", os.environ.get("GIT_CONFIG_GLOBAL", "")]
    seen: set[str] = set()
    waiting = [*((file, False) for file in own), *((file, True) for file in shared if file)]
    while waiting:
        file, of_all = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for key, value in _settings(file):
            if key in ("include.path", "includeif.path"):
                there = os.path.realpath(os.path.join(os.path.dirname(file), os.path.expanduser(value)))
                if there.startswith(f"{root}/"):
                    yield f"{file} ({key})"
                waiting.append((there, of_all))
            elif not _is_inert(key, value, root if of_all else ""):
                yield f"{file} ({key})"
        if len(seen) > _MOST_READ:
            yield file


def _is_inert(key: str, value: str, root: str) -> bool:
    """Whether a setting of git starts nothing of a folder; of one of all repositories ``root`` is the folder."""
    if _INERT_VALUES.fullmatch(value) or _INERT_KEYS.fullmatch(key):
        return True
    if not root:
        return False
    is_within = root in value.replace("~", os.path.expanduser("~"))
    is_own = key != "core.hookspath" and not is_within and _OWN_PROGRAM.fullmatch(value) is not None
    return is_own or not _OF_ALL.fullmatch(key)


def _settings(file: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a file of git as ``section.key`` and value; one of its own for a file that is no text."""
    section = ""
    for line in read_text(file, otherwise="[unreadable]\nfile = yes it is").replace("\\\n", " ").splitlines():
        line = line.strip()
        while heading := _HEADING.match(line):
            section, line = heading[1].lower(), line[heading.end() :].strip()
        name, _, value = map(str.strip, line.partition("="))
        if line and line[0] not in "#;":
            yield f"{section}.{name.lower()}", value[1:-1] if re.fullmatch(r'"[^"\\]*"', value) else value


def _hooks(folder: str) -> Iterator[str]:
    for name in filter(_HOOK.fullmatch, _listed(folder)):
        lines = read_text(os.path.join(folder, name), otherwise="unreadable").splitlines()
        if not lines or not all(_OF_LFS.fullmatch(line.strip()) for line in lines):
            yield os.path.join(folder, name)


def _listed(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def read_text(path: str, otherwise: str = "") -> str:
    """Return the text of a file; empty where there is none, ``otherwise`` for what is no file, no text or too long."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            data = file.read(_MOST_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"\0"
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return otherwise
    return otherwise if len(data) > _MOST_BYTES or b"\0" in data else data.decode(errors="surrogateescape")
