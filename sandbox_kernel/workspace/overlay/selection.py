"""Chooses which changes are applied, and says which are applied only when the user names them.

Ordinary is what a person reads, runs or opens by their own will: files with the suffix of a text, of data, of an image
or document, or of a source (``DOCUMENTS``, ``SOURCES``). Whatever else there is needs naming, because a list of what
tools run and obey has gaps: settings, builds, programs, files without a suffix. Of the ordinary ones need naming too:
names that begin with a dot, environments, repositories, links of the user, notebooks that the user has, new modules
that hide installed ones, and the names in ``OBEYED``. Where something of the user's may run sources unasked
(``runs_sources.py``), so do all sources; the user names them, or a folder or pattern.
"""

from __future__ import annotations

import fnmatch
import glob
import importlib.metadata
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.kept_changes import Kept
from sandbox_kernel.workspace.overlay.project import ProjectFolder, covered
from sandbox_kernel.workspace.overlay.runs_sources import read_text, runs_sources
from sandbox_kernel.workspace.tree.paths import folders_above, names_beneath, plain_path, shown
from sandbox_kernel.workspace.tree.walk import SYMLINK

#: What apply writes into the user's folder while it works. A program's own files of such names are never applied.
STAGE_PREFIX = ".sandbox-kernel-apply-"
#: Links that are followed to find out where a link leads, as many as the kernel follows; names on the way of all.
_MOST_LINKS, _MOST_STEPS = 40, 50_000
#: Suffixes of what no tool runs or obeys by its suffix alone, and whole names of files without one: documents and data.
DOCUMENTS = frozenset(
    """
    bib log srt vtt po readme license licence notice authors copying changelog
    csv tsv psv jsonl ndjson geojson parquet arrow feather orc avro nc zarr sqlite sqlite3 db duckdb mat
    safetensors onnx gguf xls xlsx ods fits las shp shx dbf prj fasta fa fastq vcf
    bed pdb cif gpx kml dat zip gz bz2 xz zst tar tgz patch diff png jpg jpeg gif webp bmp tif tiff ico svg eps ps
    pdf doc docx odt ppt pptx odp epub wav mp3 ogg flac mp4 mov avi mkv webm ttf otf woff woff2 obj stl ply glb gltf
    """.split()  # noqa: SIM905 - a list of so many words is read as words
)
#: The same of sources: a person runs or imports them, or a tool that the person has set up for it. Texts with examples
#: that tests run, and data that is loaded by running what is in it, are sources too.
SOURCES = frozenset(
    """
    py pyi pyx pxd ipynb r rmd qmd jl m sas stan js mjs cjs jsx ts mts cts tsx vue svelte html htm css scss sass less c
    h cc cpp cxx hh hpp hxx cu cuh rs go java kt scala swift rb php pl pm lua sh bash sql hs ml mli f f90 f95 cs fs vb
    ex erl clj cljs dart nim zig v sv vhd asm s proto graphql jinja j2 tmpl groovy
    txt text md markdown rst adoc org tex pkl pickle joblib pt ckpt bin npy npz h5 hdf5 rds rdata
    """.split()  # noqa: SIM905 - a list of so many words is read as words
)
#: Settings as often as data: ordinary only in a folder or file that is called after data.
_DATA_OR_SETTINGS = frozenset(("json", "yaml", "yml", "xml"))
_DATA_WORD = re.compile(
    r"(?:^|[-_. /])(?:data|datasets?|results?|outputs?|reports?|metrics|fixtures|predictions|scores)(?:[-_. /]|$)"
)
#: Patterns of names in small letters: of folders and files; and of files with an ordinary suffix.
OBEYED_FOLDERS = (
    # Other version control; what Python, R, node and builds load from without being told.
    "cvs", "_darcs", "__pycache__", "site-packages", "dist-packages", "__pypackages__", "conda-meta", "node_modules",
    "bower_components", "sitecustomize*", "usercustomize*", "*.dist-info", "*.egg-info", "*.egg", "*.app", "renv",
    "packrat", "buildsrc", "jupyter*config*", "ipython*config*", "requirements", "constraints",
)  # fmt: skip
OBEYED = (
    # Builds, tests, packages and environments.
    "setup.*", "conftest.*", "build.*", "*build.*js", "hatch_build.py", "*[!_]file.py", "*[!_]file.*[jt]s", "dodo.py",
    "*[!_]file.rb", "*[!_]file.lua", "*[!_]file.hs", "gems.rb", "extconf.rb", "project.clj", "*_build.py",
    "user.clj*", "data_readers.clj*", "*.workspace.*", "wallaby.*", "pathdef.m", "finish.m", "myocamlbuild.ml",
    "tasks.py", "conf.py", "*.conf.*", "*.config.*", "config.nim*", "package.*", "webpack*", "gatsby-*", "eslint*",
    "xmake.lua", "premake*.lua", "makefile.*", "rector.php", "startup.m", "*.gradle.*", "cmakelists.txt",
    "*requirements*.txt", "*constraints*.txt", "pavement.py", "sconstruct.*", "compile_flags.txt", "autoexec.*",
    "*policy*.json", "*policy*.y*ml", "pom.xml", "*compose*.y*ml", "dvc.y*ml", "[jt]sconfig*.json", "project.json",
    "composer.json", "deno.json", "*pipeline*.y*ml",
    # Agents.
    "agent*.md", "claude*.md", "gemini*.md", "qwen*.md", "codex*.md", "crush*.md", "copilot*.md", "opencode*.md",
    "codebuddy*.md", "iflow*.md", "soul.md",
    "warp.md", "grok.md", "jules.md", "replit.md", "knowledge.md", "conventions.md", "rules*.md", "prompt*.md",
    "memory*.md", "skill*.md", "llms*.txt", "*.instructions.md", "*.prompt.md", "*.chatmode.md",
)  # fmt: skip
_obeyed_folder = re.compile("|".join(map(fnmatch.translate, OBEYED_FOLDERS)))
_obeyed_file = re.compile("|".join(map(fnmatch.translate, OBEYED)))
#: Modules that Python's own library and pip try to import, and that no Python has: ``copy`` tries ``org``.
_TRIED = frozenset(("org", "java", "vms_lib", "_manylinux", "socks", "simplejson", "thread", "urllib3_secure_extra"))
#: Another spelling of a name that Windows' file systems make: ``CLAUDE~1.MD``.
_SHORT_NAME = re.compile(r".{1,6}~\d+(\..{0,3})?")
#: What a folder holds that is an environment, or which git takes for a repository, whatever the folder is called.
_MARKED_BY = (("pyvenv.cfg",), ("conda-meta",), ("bin/activate",), ("HEAD", "objects", "refs"), ("HEAD", "commondir"))
#: Bits of a mode that only the user adds to a file of theirs: all but the owner's to read and write. To a new file:
#: whatever makes it a program, or lets everybody write it.
_WIDER, _WIDER_NEW = 0o177, 0o113


def select(entries: Mapping[str, Kept], paths: Iterable[str | os.PathLike[str]] | None) -> dict[str, Kept]:
    """Choose changes at and below the paths, or of a pattern; all without paths. ``InvalidRequest``: none is there."""
    chosen: dict[str, Kept] = {}
    for asked in _listed(["."] if paths is None else paths):
        chosen |= _found(entries, asked)[0]
    return chosen


def select_to_apply(
    entries: Mapping[str, Kept],
    paths: Iterable[str | os.PathLike[str]] | None,
    project: ProjectFolder,
    *,
    by_user: bool = True,
) -> dict[str, Kept]:
    """Choose changes to apply; new folders above a chosen file come along.

    What needs naming is chosen only by its own name, never by a pattern or with the folder that it lies in, and only
    ``by_user``: an agent that names it is not the user. Raises ``InvalidRequest`` for a path at which nothing changed,
    or nothing that can be applied so.
    """
    chosen: dict[str, Kept] = {}
    obeyed = Obeyed(entries, project)
    for asked in _listed(["."] if paths is None else paths):
        found, named = _found(entries, asked)
        told = named if by_user else ""
        usable = {path: kept for path, kept in found.items() if not _needs_more(path, entries, obeyed, told)}
        if paths is None or not by_user:
            usable = {path: kept for path, kept in usable.items() if not obeyed.may_run(path)}
        if named and any(map(_never, found)):
            raise InvalidRequest(f"{quoted(named)} has a name of apply's own in it, which is never applied; rename it")
        if not usable and found and not by_user:
            raise InvalidRequest(
                f"{quoted(min(found))} is obeyed by tools of the user, leads out of the folder, or may hold secrets: "
                f"only the user can apply it, for example with the patch; leave it out. {obeyed.why}".strip()
            )
        if not usable and paths is not None and found:
            raise InvalidRequest(f"{quoted(asked)} is applied only by its own name: {quoted(min(found))}")
        chosen |= usable
    for above in {above for path in chosen for above in folders_above(path)}:
        kept = entries.get(above)
        if kept is None or not kept.entry.is_dir or kept.on_folder:
            continue
        if kept.base is None or not _needs_more(above, entries, obeyed, ""):
            chosen[above] = kept
    _leave_out_what_hangs_together(chosen, entries, project)
    if paths is not None and not chosen:
        raise InvalidRequest(
            "these changes cannot be applied alone: a folder among them holds files that are hidden from programs, or "
            "lies below a change that is not applied; apply that one by its own name"
        )
    return chosen


def _listed(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [plain_path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def _found(entries: Mapping[str, Kept], asked: str) -> tuple[dict[str, Kept], str]:
    """Return the changes at and below a path and the path itself; or those of a pattern, and an empty path.

    A changed file of exactly this name wins over a pattern: a program may call a file ``*``.
    """
    wanted = asked if isinstance(asked, str) and asked in entries else "/".join(names_beneath(asked, folder=True))
    if not wanted:
        return dict(entries), ""
    found = {path: kept for path, kept in entries.items() if path == wanted or path.startswith(f"{wanted}/")}
    if found:
        return found, wanted
    found = {path: kept for path, kept in entries.items() if fnmatch.fnmatchcase(path, wanted)}
    if not found:
        near = ", ".join(sorted(entries)[:5]) or "nothing"
        raise InvalidRequest(f"nothing changed at {quoted(wanted)}; changed: {near}")
    return found, ""


def _needs_more(path: str, entries: Mapping[str, Kept], obeyed: Obeyed, named: str) -> bool:
    """Whether a change needs naming and was not named: neither itself nor the folder that needs it."""
    if _never(path):
        return True
    if obeyed.by_place(path):
        return not obeyed.by_place(named)
    return path != named and (obeyed.by_change(path, entries[path]) or _leads_away(path, entries, obeyed))


def _leave_out_what_hangs_together(
    chosen: dict[str, Kept], entries: Mapping[str, Kept], project: ProjectFolder
) -> None:
    """Take out what cannot be applied without something that is left out.

    Below a link or file that takes the place of a folder and is left out, nothing is removed; below a folder that takes
    the place of a file or link and is left out, nothing is written. A folder of the user that shall go stays while
    something in it stays: a change that is left out, or a file that is hidden from programs.
    """
    in_place = {path for path in set(entries) - set(chosen) if not entries[path].is_gone}
    replacing = {path for path in in_place if (base := entries[path].base) is not None and not base.is_dir}
    _drop_below(chosen, replacing | {path for path in in_place if not entries[path].entry.is_dir})
    staying = [path for path in (*project.hidden_files.find(), *entries) if path not in chosen]
    stays = {above for path in staying for above in folders_above(path)}
    for path in sorted(chosen, key=lambda path: -path.count("/")):
        kept = chosen.get(path)
        if path in stays and kept is not None and kept.on_folder and not kept.entry.is_dir:
            del chosen[path]
            stays.update(folders_above(path))
            if not kept.is_gone:
                _drop_below(chosen, {path})


def _drop_below(chosen: dict[str, Kept], roots: set[str]) -> None:
    for path in [path for path in chosen if not roots.isdisjoint(folders_above(path))] if roots else ():
        del chosen[path]


def _never(path: str) -> bool:
    return any(part.startswith(STAGE_PREFIX) for part in path.split("/"))


def _leads_away(path: str, entries: Mapping[str, Kept], obeyed: Obeyed) -> bool:
    """Whether a link leads nowhere, out of the folder, or to what needs naming.

    It may lead through links that are there or will be. A link that leads to no folder is a file of its own name.
    """
    target = entries[path].entry.target
    if target is None:
        return False
    at = path.split("/")[:-1]
    left = list(reversed(target.split("/")))
    followed = 0
    if target.startswith("/"):
        return True
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(name)
        inner = "/".join(at)
        known = entries.get(inner)
        if known is not None and known.base is not None and known.base.type == SYMLINK:
            return True  # a link of the user: whether its change is applied is not known here
        obeyed.steps -= 1
        there = known.entry if known is not None else obeyed.project.entry_at(inner)
        if there is None or there.is_gone or obeyed.steps < 0:
            return True  # it leads to nothing; or too many lead too far
        link = there.target
        if link is not None:
            followed += 1
            if link.startswith("/") or followed > _MOST_LINKS:
                return True
            at.pop()
            left += reversed(link.split("/"))
    end = "/".join(at)
    return obeyed.by_place(end) or not (obeyed.is_folder(end) or is_ordinary(path))


class Obeyed:
    """Tells which of these changes need naming: by the place where they are, or by what they are."""

    def __init__(self, entries: Mapping[str, Kept], project: ProjectFolder) -> None:
        self._entries = entries
        self.project = project
        self._there = {folded(path) for path, kept in entries.items() if not kept.is_gone}
        self._folders = {"": self._is_marked("")}
        #: How many more names on the way of links are looked at.
        self.steps = _MOST_STEPS

    def by_place(self, path: str) -> bool:
        """Whether everything at this path needs naming, or the path is one that is hidden from programs."""
        return bool(path) and (self._by_name(path) or (bool(self._linked) and covered(folded(path), self._linked)))

    def may_run(self, path: str) -> bool:
        """Whether a change is one of a source that something of the user's may run unasked."""
        return is_ordinary(path, SOURCES) and bool(self.why)

    @cached_property
    def why(self) -> str:
        """What of the user's may run sources unasked, as a sentence; empty for nothing."""
        found = runs_sources(self.project)
        return (
            f"Sources are applied only when the user names them: {shown(found)} may run them unasked" if found else ""
        )

    def by_change(self, path: str, kept: Kept) -> bool:
        """Whether a change needs its own name: of a notebook or link, a wider mode, a module that hides another."""
        base = kept.base
        if base is None and self._hides_module(path, kept):
            return True
        if base is not None and folded(path).endswith(".ipynb"):
            return True
        # Links of any name may lead to a folder: they would be files with it.
        if kept.on_folder and kept.entry.is_file:
            return True
        # A link of the user may stand in the middle of a chain from a name that a tool obeys.
        if base is not None and SYMLINK in (base.type, kept.entry.type):
            return True
        mode = kept.entry.mode
        if kept.entry.is_dir:
            return base is not None and base.is_dir and bool(mode & ~base.mode & 0o077)
        wider = mode & ~base.mode & _WIDER if base is not None and base.is_file else mode & _WIDER_NEW
        return kept.entry.is_file and wider != 0

    def _by_name(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if self._lies_within(folder) or _is_odd(name) or is_hidden(path):
            return True
        if self.is_folder(path):
            return self._lies_within(path)
        # Where a link leads decides about its suffix: ``_leads_away``.
        kept, plain = self._entries.get(path), folded(name)
        is_link = kept.entry.type == SYMLINK if kept is not None else self.project.read_link(path) is not None
        is_obeyed = _obeyed_file.match(plain) or _SHORT_NAME.fullmatch(plain)
        return bool(is_obeyed) or not (is_link or is_ordinary(path))

    def _lies_within(self, folder: str) -> bool:
        """Whether all in a folder needs naming, by its name or mark or those of one above. Each is looked at once."""
        unknown: list[str] = []
        while folder not in self._folders:
            unknown.append(folder)
            folder = folder.rpartition("/")[0]
        known = self._folders[folder]
        for folder in reversed(unknown):
            known = known or _is_odd(folder.rpartition("/")[2]) or self._is_marked(folder)
            self._folders[folder] = known
        return known

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder, for the user and by the changes."""
        if not path:
            return True
        kept, users = self._entries.get(path), self.project.entry_at(path)
        had = users.is_dir if users is not None else kept is not None
        return had and (kept is None or kept.is_gone or kept.entry.is_dir)

    def _is_marked(self, folder: str) -> bool:
        """Whether a folder is an environment or a repository, or everybody may write into it, now or by the changes."""
        prefix, kept = f"{folder}/" if folder else "", self._entries.get(folder)
        if kept is not None and kept.entry.is_dir and kept.base is None and kept.entry.mode & 2 != 0:
            return True
        return any(
            all(folded(prefix + name) in self._there or self.project.entry_at(prefix + name) for name in marks)
            for marks in _MARKED_BY
        )

    def _hides_module(self, path: str, kept: Kept) -> bool:
        """Whether a new file would be imported in place of an installed module by a process that starts above it.

        Kernels and ``python -m`` start in the folder itself, or in that of a notebook, and look there first. Packages
        without ``__init__.py`` are put together from all places.
        """
        if not (path.casefold().endswith(".py") or kept.entry.type == SYMLINK):
            return False
        names, own = folded(path).removesuffix("/__init__.py").split("/"), path.split("/")
        for depth, name in enumerate(names):
            module, is_last = name.removesuffix(".py"), depth == len(names) - 1
            asked = module in self._installed or module.startswith(("jupyter", "ipykernel", "ipython"))
            if (asked if is_last else module in self._put_together) and self._starts_in(own[:depth]):
                return True
        return False

    def _starts_in(self, folder: Sequence[str]) -> bool:
        """Whether a process may start in a folder, the first one or one with a notebook, or looks for modules there."""
        above = os.path.join(self.project.path, *folder)
        plain = [folded(name) for name in folder]
        return (
            not folder
            or above in self._looked_in
            or bool(glob.glob(f"{glob.escape(above)}/*.[iI][pP][yY][nN][bB]"))
            or any(there.endswith(".ipynb") and there.split("/")[:-1] == plain for there in self._there)
        )

    @cached_property
    def _sites(self) -> list[str]:
        """Where modules are installed: here and in environments of the folder."""
        root = self.project.path
        sites = [path for path in sys.path if os.path.isabs(path) and not f"{path}/".startswith(f"{root}/")]
        return sites + [at for dot in ("", ".") for at in glob.glob(f"{glob.escape(root)}/{dot}*/lib/*/site-packages")]

    @cached_property
    def _looked_in(self) -> frozenset[str]:
        """Where Python looks for modules, by ``PYTHONPATH`` or as ``pip install -e`` told it or an environment here."""
        files = [file for site in self._sites for file in glob.glob(f"{glob.escape(site)}/*.pth")]
        named = [line for file in files[:100] for line in read_text(file).splitlines()[:100]]
        return frozenset(os.path.realpath(path) for path in (*sys.path, *named))

    @cached_property
    def _installed(self) -> frozenset[str]:
        """Names of modules: those of Python, those installed, and those that these use where they are there; folded."""
        found = sys.stdlib_module_names | self._put_together
        for site in self._sites:
            with suppress(OSError):
                found |= {name.partition(".")[0] for name in os.listdir(site)}
        return frozenset(map(folded, found))

    @cached_property
    def _put_together(self) -> frozenset[str]:
        """Names of packages of which a part in the user's folder is imported: those that lack ``__init__.py`` or are
        not there at all; folded.
        """
        found = set(_TRIED)
        sites = [site for site in self._sites if site.endswith("-packages")]
        for site in sites:
            with suppress(OSError), os.scandir(site) as entries:
                folders = [entry for entry in entries if entry.name.isidentifier() and entry.is_dir()]
                found |= {folder.name for folder in folders if not os.path.exists(f"{folder.path}/__init__.py")}
        for package in importlib.metadata.distributions(path=sites):
            wanted = (re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in package.requires or ())
            found |= {name.replace("-", "_").removeprefix("python_") for name in wanted}
        return frozenset(map(folded, found))

    @cached_property
    def _linked(self) -> frozenset[str]:
        """Where links of the user lead that a tool obeys: folded paths."""
        root = self.project.path
        # Links in packages lead to the user's own sources in projects of several packages.
        links = [link for link in self.project.links() if _PACKAGES.isdisjoint(link.split("/"))]
        # A name like ``latest`` is the user's own; one like ``Makefile`` or ``x.toml`` is a tool's.
        named = {link for link in links if not is_ordinary(link) and _OF_A_TOOL.search(link)}
        files = {link for link in named if not os.path.isdir(os.path.join(root, link))}
        obeyed = [link for link in links if link in files or self._by_name(link)]
        paths = [os.path.realpath(os.path.join(root, link)) for link in obeyed]
        return frozenset(folded(path[len(root) + 1 :]) for path in paths if path.startswith(f"{root}/"))


def is_ordinary(path: str, suffixes: frozenset[str] = DOCUMENTS | SOURCES) -> bool:
    """Whether the suffix of a file is that of a text, of data, of a document or of a source; or one of these."""
    names = folded(path).split("/")
    suffix = names[-1].rpartition(".")[2]
    if suffix in _DATA_OR_SETTINGS:
        return suffixes is not SOURCES and _DATA_WORD.search("/".join(names)) is not None
    return suffix in suffixes


_IGNORED = frozenset(("Cc", "Cf", "Co", "Mn", "Me"))
_ENDS = re.compile(r":|[. ](?:/|\Z)")


def folded(path: str) -> str:
    """Return a path as file systems may take it that know no case, no marks and no dots at the end of a name."""
    if path.isascii() and path.isprintable():
        if not _ENDS.search(path):
            return path.casefold()
    else:
        signs = unicodedata.normalize("NFKD", path)
        path = "".join(sign for sign in signs if unicodedata.category(sign) not in _IGNORED)
    return "/".join(name.partition(":")[0].rstrip(". ") for name in path.casefold().split("/"))


def _is_odd(name: str) -> bool:
    """Whether the name of a file or folder begins with a dot, is that of an obeyed folder, or two names in one."""
    # Windows reads what stands before a colon, Linux all of ``x:a.dist-info``.
    if ":" in unicodedata.normalize("NFKD", name):
        return True
    return any(not part or part.startswith(".") or _obeyed_folder.match(part) for part in folded(name).split("/"))


_OF_A_TOOL = re.compile(r"(?:\.[^/]*|[A-Z][^/]*|file|rc|config)\Z")
_PACKAGES = frozenset(("node_modules", "site-packages"))
