"""Which files of a user's folder a program does not see although it sees the folder: places where secrets are kept.

Goes by names, at any depth. Every name that begins with a dot is hidden, unless it is a usual one that holds no secrets
(``SHOWN``); of the others, those in ``HIDDEN``, and files that are no sources and say what they hold (``HIDDEN_DATA``).
The lists are public: docs and report show ``HIDDEN``. A secret in a file of another name is not found. A look lists
only folders that changed since the last one, so that it can be taken before every run.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.tree.paths import folders_above

#: Names and patterns, as they are shown. A name with a slash means the end of a path.
HIDDEN = (
    ".env", ".*", "*.env", "env.local", "env.prod*", "env.dev*", "env.stag*", "env.test*", "_netrc", "*.pem", "*.key",
    "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.keytab", "*.ppk", "*.ovpn", "*.kdb", "*.kdbx", "*.tfvars",
    "*.tfvars.json", "*.tfstate", "*.tfstate.*", "*.mobileprovision", "*.secret", "*.secrets", "*.token", "*.password",
    "*.credentials", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_xmss*", "secrets", "credentials", "passwd",
    "*adminsdk*.json", "kaggle.json", "auth.json", "pip.conf", "rclone.conf", "kubeconfig*", "*.kubeconfig",
    "wallet.dat", "wp-config.php", "gradle.properties", "local.properties", "*.git/config", "*.git/config.worktree",
    "*.git/logs", ".git/modules/*/config", ".git/modules/*/logs", ".git/worktrees/*/config.worktree",
    ".git/worktrees/*/logs", ".cargo/credentials*", ".dvc/config.local", ".vscode/sftp.json", ".streamlit/secrets*",
    ".cargo/config.toml", ".hg/hgrc", ".svn/auth", "*.git/annex/creds", ".mvn/settings*.xml", ".jj/repo/config.toml",
    "netrc", "htpasswd", "pgpass", "*[-_]token", "api_key", "private_key", "privatekey", "ssh_key",
    "deploy[-_]key", "*.git/config.lock", ".git/modules/*/config.lock", ".dvc/config", "*vault*pass*", "rootkey*.csv",
    "wg[0-9]*.conf", "secring.*", "private*.asc", "*.pkcs12", "*.publishsettings", "*.keychain*", "age*key*.txt",
    "storagestate*.json", "cookies.txt", "cookies.sqlite*",
)  # fmt: skip
#: Files with such a part in their name are hidden unless they are sources.
HIDDEN_DATA = re.compile(
    r"credential|(^|[-_. ])secrets?([-_. ]|$)|client_?secret|passw(or)?d|passphrase|private[-_]?key|service[-_]?account"
    r"|(api|access|auth|signing|encryption)[-_]?keys?$|(^|[-_. ])token$|(access|auth|api|refresh|bearer)[-_]?tokens?$",
    re.IGNORECASE,
)
#: Suffixes of sources. Names without a suffix are mostly those of folders: they are in ``HIDDEN``.
_SOURCES = frozenset((
    "", "py", "pyi", "pyx", "pyc", "ipynb", "r", "rmd", "qmd", "jl", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts",
    "tsx", "map", "vue", "svelte", "html", "htm", "css", "scss", "less", "c", "h", "cc", "cpp", "hpp", "o", "so", "rs",
    "go", "java", "class", "kt", "scala", "swift", "rb", "erb", "php", "pl", "pm", "lua", "sh", "bash", "sql", "hs",
    "cs", "ex", "exs", "erl", "clj", "dart", "proto", "graphql", "rst", "svg", "png", "jpg", "j2", "jinja", "tf",
))  # fmt: skip
#: Names that a pattern above would hide and that hold nothing secret: those of tools that a project is read with.
SHOWN = (
    ".env.example", ".env.sample", ".env.template", ".env.dist", "cacert.pem", ".git", ".gitignore", ".gitattributes",
    ".gitmodules", ".gitkeep", ".gitlint", ".mailmap", ".git-blame-ignore-revs", ".github", ".gitlab",
    ".gitlab-ci*.yml", ".gitea", ".forgejo", ".circleci", ".travis.yml", ".appveyor.yml", ".azure-pipelines",
    ".buildkite", ".woodpecker*", ".drone.yml", ".hg", ".hgignore", ".hgtags", ".svn", ".jj", ".editorconfig",
    ".*ignore", ".keep", ".placeholder", ".nojekyll", ".*-version", ".tool-versions", ".nvmrc", ".pre-commit-*.yaml",
    ".pre-commit-*.yml", ".flake8", ".pylintrc", ".isort.cfg", ".coverage*", ".ruff.toml", ".mypy.ini", ".bandit*",
    ".yamllint*", ".markdownlint*", ".codespell*", ".style.yapf", ".pydocstyle*", ".pep8", ".pycodestyle",
    ".bumpversion*", ".cruft.json", ".copier-answers.yml", ".readthedocs.y*ml", ".codecov.y*ml", ".codeclimate.yml",
    ".sourcery.yaml", ".eslintrc*", ".prettierrc*", ".stylelintrc*", ".babelrc*", ".browserslistrc", ".swcrc",
    ".nycrc*", ".mocharc*", ".jshintrc", ".lintstagedrc*", ".commitlintrc*", ".postcssrc*", ".huskyrc*", ".husky",
    ".githooks", ".changeset", ".storybook", ".clang-format", ".clang-tidy", ".clangd", ".cmake-format*", ".gersemirc",
    ".rubocop*.yml", ".rspec", ".rustfmt.toml", ".swiftlint.yml", ".swift-format", ".scalafmt.conf", ".golangci.y*ml",
    ".lintr", ".bazelrc", ".bazelversion", ".terraform.lock.hcl", ".tflint.hcl", ".ansible-lint", ".devcontainer",
    ".devcontainer.json", ".vscode", ".project", ".pydevproject", ".classpath", ".settings", ".cursorrules", ".cargo",
    ".mvn", ".yarn", ".pnp.*", ".dvc", ".dvcignore", ".streamlit", ".quarto", ".sphinx", ".buildinfo", ".doctrees",
    ".venv", ".tox", ".nox", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints",
    ".virtual_documents", ".next", ".nuxt", ".svelte-kit", ".parcel-cache", ".turbo", ".angular", ".docusaurus",
    ".snakemake", ".nextflow*", ".zarray", ".zgroup", ".zattrs", ".zmetadata", ".*.crc", "._*", ".DS_Store", ".libs",
    ".dylibs", ".htaccess", ".well-known", ".Rproj.user", ".nfs*", ".fuse_hidden*",
)  # fmt: skip
#: In these folders lie packages of others and what git keeps: only ``HIDDEN`` counts there, and no dot.
_PUBLIC = frozenset((".git", ".hg", ".svn", ".tox", ".nox", ".venv", ".yarn", "node_modules", "site-packages"))
#: A folder with more entries than this, all together, is refused: nobody knows which secrets are in it.
MOST_ENTRIES = 1_000_000
#: With no more folders than this, secrets that are put in while a session runs are looked for before every cell.
FEW_FOLDERS = 100
#: The most files of one changed folder that are remembered.
MOST_RELISTED = 2000
_HEAD = "HEAD"
_CLOCK_STEP_NS = 50_000_000


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, names)), re.IGNORECASE)


#: Most patterns are suffixes, which are looked up: this is asked for every file of a folder.
_suffixes = frozenset(name[2:] for name in HIDDEN if name.startswith("*.") and name.count(".") == 1 and "/" not in name)


class _Patterns(NamedTuple):
    """What names and ends of paths are hidden, the last names of those ends, and what is shown."""

    single: re.Pattern[str]
    ends: re.Pattern[str]
    last_of_ends: re.Pattern[str]
    shown: re.Pattern[str]


@functools.cache
def _patterns() -> _Patterns:
    # Compiled at the first question: that takes a twentieth of the start of a kernel, and most ask none.
    return _Patterns(
        _pattern(name for name in HIDDEN if "/" not in name and name != ".*" and name[2:] not in _suffixes),
        _pattern(form for name in HIDDEN if "/" in name for form in (name, f"*/{name}")),
        _pattern(name.rpartition("/")[2] for name in HIDDEN if "/" in name),
        _pattern(SHOWN),
    )


#: What editors and people add to the name of a file that they keep beside the new one.
_COPIES = ("bak", "old", "orig", "save", "backup")
_BACKUP = re.compile(rf"^[.#]?(?P<name>.+?)(?:~|#|\.(?:{'|'.join(_COPIES)}|sw[a-p]))$", re.IGNORECASE)


def is_hidden(path: str) -> bool:
    """Whether a path, relative to the folder, is of a name that is hidden, or lies in a folder that is.

    Goes by the names alone: every door that answers a program or an agent asks here, whether the file is there or not.
    The path has plain names between its slashes (``names_beneath``).
    """
    folder, _, name = path.rpartition("/")
    return (folder != "" and _lies_hidden(folder)) or _matches(path, name)


@lru_cache(maxsize=4096)
def _lies_hidden(folder: str) -> bool:
    """Whether a folder is hidden, or one above it: asked once for all files in it."""
    above, _, name = folder.rpartition("/")
    if folder.count("/") > _DEEP:
        return any(_matches(one, one.rpartition("/")[2]) for one in (folder, *folders_above(folder)))
    return (above != "" and _lies_hidden(above)) or _matches(folder, name)


#: The most folders one in another for which each is remembered.
_DEEP = 200
#: A copy of a copy of a copy …: nobody makes one, and each costs all patterns. It is hidden.
_MOST_COPIES = 4


def _matches(path: str, name: str, copies: int = 0) -> bool:
    stem, dot, suffix = name.rpartition(".")
    suffix, patterns = suffix.lower() if dot else "", _patterns()
    if (suffix in _suffixes or patterns.single.match(name) is not None) and name not in SHOWN:
        return True
    if patterns.last_of_ends.match(name) is not None and patterns.ends.match(path) is not None:
        return True
    if name.endswith(("~", "#")) or suffix in _COPIES or suffix.startswith("sw"):
        if copies == _MOST_COPIES:
            return True
        backup = _BACKUP.match(name.rstrip("~#") + name[-1] if name[-1] in "~#" else name)
        if backup is not None and _matches(path[: -len(name)] + backup["name"], backup["name"], copies + 1):
            return True
    dotted = name.startswith(".") and patterns.shown.match(name) is None
    if not _PUBLIC.isdisjoint(path.split("/")[:-1]):
        return dotted and name.startswith((".env", ".netrc", ".npmrc", ".pypirc"))
    return dotted or (suffix not in _SOURCES and HIDDEN_DATA.search(stem) is not None)


@dataclass
class _Listed:
    """One folder as it was listed: when it had changed last, its hidden names, its subfolders and what is marked."""

    changed_ns: int
    hidden: tuple[str, ...]
    folders: tuple[str, ...]
    entries: int
    marked: tuple[str, ...]


class HiddenFiles:
    """Finds the hidden files and folders below one folder of the host; remembers what it has listed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[str, _Listed] = {}
        self._relisted: dict[str, tuple[int, dict[str, int]]] = {}
        self._looks = 0

    @property
    def is_small(self) -> bool:
        """Whether a look is so cheap that it can be taken before every cell."""
        return 0 < len(self._listed) <= FEW_FOLDERS

    def find(self) -> tuple[str, ...]:
        """Return the hidden paths of now, outermost, sorted; ``InvalidRequest``: there is too much to look through."""
        self._looks += 1
        found: list[str] = []
        seen: dict[str, _Listed] = {}
        waiting, entries = [""], 0
        while waiting:
            if entries > MOST_ENTRIES:
                raise InvalidRequest(
                    f"{self._root!r} holds more than {MOST_ENTRIES} files and folders, too many to find the secrets "
                    "among them that programs must not see; name a smaller folder"
                )
            folder = waiting.pop()
            listed = self._list(folder)
            if listed is None:
                continue
            seen[folder] = listed
            entries += listed.entries
            found += listed.hidden
            waiting += listed.folders
        self._listed = seen
        return tuple(sorted(found))

    def marked(self) -> list[str]:
        """Return the links among what ``find`` has listed, names with a dot, and ``HEAD``, which tells a repository."""
        return [path for known in self._listed.values() for path in known.marked]

    def dotted(self) -> list[str]:
        """Return what ``find`` has listed of names that begin with a dot, but not in packages and repositories."""
        found = (path for known in self._listed.values() for path in (*known.hidden, *known.marked))
        split = (path.split("/") for path in dict.fromkeys(found))
        return ["/".join(names) for names in split if names[-1].startswith(".") and _PUBLIC.isdisjoint(names[:-1])]

    def relisted(self, since: int) -> tuple[int, dict[str, int]]:
        """Return the files, with inodes, of small folders that changed after a look, and the last look's number."""
        files = (known for number, known in self._relisted.values() if number > since)
        return self._looks, {path: inode for known in files for path, inode in known.items()}

    def _list(self, folder: str) -> _Listed | None:
        path = os.path.join(self._root, folder) if folder else self._root
        try:
            # The time of change: rsync, cp -a and tar set that of modification back.
            changed_ns = os.stat(path, follow_symlinks=not folder).st_ctime_ns
            # Times have the resolution of the kernel's clock: a young folder can change again and keep its time.
            young = changed_ns > time.time_ns() - _CLOCK_STEP_NS
            known = self._listed.get(folder)
            if known is not None and known.changed_ns == changed_ns:
                return known
            hidden: list[str] = []
            folders: list[str] = []
            marked: list[str] = []
            files: dict[str, int] = {}
            count = 0
            with os.scandir(path) as scan:
                for item in scan:
                    count += 1
                    inner = f"{folder}/{item.name}" if folder else item.name
                    if item.is_symlink() or item.name.startswith(".") or item.name == _HEAD:
                        marked.append(inner)
                    if _matches(inner, item.name):
                        hidden.append(inner)
                    elif item.is_dir(follow_symlinks=False):
                        folders.append(inner)
                    elif known is not None and len(files) < MOST_RELISTED:
                        files[inner] = item.inode()
        except OSError:
            return None
        if known is not None:
            self._relisted.pop(folder, None)
            self._relisted[folder] = self._looks, files
            while len(self._relisted) > FEW_FOLDERS:
                del self._relisted[next(iter(self._relisted))]
        return _Listed(-1 if young else changed_ns, tuple(hidden), tuple(folders), count, tuple(marked))
