"""``%pip install`` for Python in WebAssembly: pip itself, as a program beside the worker, in the jail of the session.

pip installs into a new folder of the work folder, which ``cell_boot.py`` takes over inside the guest. The worker calls
``install``, which runs this file as a program (``main``). The program tells pip the markers of the guest's Python, and
which packages are there. It lets pip start no process, so no code of a package runs outside of WebAssembly.

``%sandbox install`` runs the same program for sessions of processes (``notebook/packages.py``): there the markers are
those of this Python, and wheels of this machine are taken.

pip has no interface for this, so ``main`` replaces six functions of it, which are the same in pip 23.2 to 26.3.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .guest_files import Folders

_FLAGS = ("-U", "--upgrade", "--pre", "--no-deps", "--no-index")
#: Options that people write and that change nothing here.
_IGNORED = ("-q", "--quiet", "--no-cache-dir", "--disable-pip-version-check", "-y", "--yes")
_INDEXES, _LINKS, _FILES = ("-i", "--index-url", "--extra-index-url"), ("-f", "--find-links"), ("-r", "--requirement")
_VALUES = (*_INDEXES, *_LINKS, *_FILES, "--trusted-host")
_ALWAYS = (
    "install", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-color", "--progress-bar", "off",
    "--no-compile", "--no-warn-conflicts", "--root-user-action", "ignore", "--retries", "1",
    "--timeout", "30", "--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none",
)  # fmt: skip
_PROXY = ("http_proxy", "https_proxy")
_NATIVE = (".so", ".pyd", ".dll", ".dylib", ".a")
_USE_NATIVE = (
    "WebAssembly runs only pure Python: use the native backend (backend='process', %%sandbox --backend process)"
)
_NO_INDEX = (
    "no package index is known: this sandbox has no network, or pip on the host uses an index with a password; name "
    "one that it may reach (%pip install -i URL NAME, with --allow-net DOMAIN for its domain and that of its files), "
    "or install wheels of a folder that it can read: %pip install --no-index --find-links FOLDER NAME"
)
#: Most address space of pip, and most files and bytes of what it installs.
_MOST_MEMORY, _MOST_FILES, _MOST_BYTES = 1 << 30, 4000, 64 << 20
_MOST_WORDS, _MOST_LINES = 2000, 12


class PipRefusal(Exception):
    """Raised when nothing is installed; ``native`` says that a package has native code."""

    def __init__(self, message: str, *, native: bool = False) -> None:
        super().__init__(message)
        self.native = native


def install(letter: dict[str, object], folders: Folders, scratch: str, indexes: Sequence[str]) -> dict[str, object]:
    """Install packages into a new folder; returns its name in the guest, and the names that were asked for.

    ``letter`` is what the guest sent: the words of the line, its folder, version, index and import paths. ``scratch``
    is a folder of the jail for files of pip itself, ``indexes`` are the package indexes of a line that names none.
    """
    for left in os.listdir(scratch):  # of a cell that was ended while pip ran
        if left.startswith("pip-"):
            shutil.rmtree(os.path.join(scratch, left), ignore_errors=True)
    name = f"/box/.pip-{secrets.token_hex(8)}"
    aside, target = tempfile.mkdtemp(prefix="pip-", dir=scratch), folders.host_path("/box") + name.removeprefix("/box")
    try:
        words, there, version = letter["words"], letter["paths"], str(letter["version"])
        if not isinstance(words, list) or not isinstance(there, list):
            raise PipRefusal("the guest sent something else than a line of %pip")
        own = str(letter.get("index") or "").split()
        line = [str(word) for word in words]
        asked, names = _read_line(line, folders, str(letter.get("folder")), own or list(indexes))
        arguments = [*_ALWAYS, "--python-version", version, "--target", target, *asked]
        os.mkdir(target)
        _run(arguments, [_host_path(folders, str(path)) for path in there], version, aside)
        _check(target)
    except (PipRefusal, OSError, KeyError, ValueError) as error:
        shutil.rmtree(target, ignore_errors=True)
        return {"error": str(error)[:_MOST_WORDS], "native": isinstance(error, PipRefusal) and error.native}
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return {"folder": name, "names": names}


def _read_line(words: list[str], folders: Folders, folder: str, usual: list[str]) -> tuple[list[str], list[str]]:
    """Return pip's arguments for a line, with the ``usual`` indexes if it names none, and the names; or refuse it."""
    names, flags, indexes, arguments = list[str](), list[str](), list[str](), list[str]()

    def path(given: str) -> str:
        return os.path.join(folder, re.sub(r"\A~(?=/|\Z)", "/box", given))

    while words:
        word, given, value = words.pop(0).partition("=")
        if not word.startswith("-"):
            names.append(word + given + value)
            continue
        if word in _FLAGS and not given:
            flags.append(word)
            continue
        if word in _IGNORED and not given:
            continue
        if word not in _VALUES or not (given or words):
            known = " ".join(sorted((*_FLAGS, *_IGNORED, *_VALUES)))
            raise PipRefusal(f"{word} cannot be used here; %pip install in WebAssembly knows: {known}")
        value = value if given else words.pop(0)
        if word in _INDEXES:
            indexes.append(value)
        elif word in _LINKS:
            if "://" in value or not os.path.isdir(place := _host_path(folders, path(value))):
                raise PipRefusal(f"--find-links takes a folder that this sandbox can read, got {value[:200]!r}")
            arguments += ["--find-links", place]
        elif word in _FILES:
            for line in folders.read(path(value)).decode("utf-8", "replace").splitlines():
                name = re.sub(r"(^|\s)#.*", "", line).strip()
                if name.startswith("-"):
                    raise PipRefusal(f"{value} has the line {name[:100]!r}; only names of packages are read")
                names += [name] if name else []
    if not names:
        raise PipRefusal("%pip install needs the name of a package, for example %pip install six")
    roots = [_checked_name(name, folders, path(name)) for name in names]
    indexes = [] if "--no-index" in flags else indexes or usual
    if not indexes and "--no-index" not in flags:
        raise PipRefusal(_NO_INDEX)
    for number, address in enumerate(indexes):
        arguments += ["--extra-index-url" if number else "--index-url", address]
        if address.startswith("http://"):  # the rules of the sandbox decide what is reached
            arguments += ["--trusted-host", urlsplit(address).netloc]
    return [*flags, *arguments, *roots], names


def _checked_name(name: str, folders: Folders, path: str) -> str:
    """Return the name of a package, or where its wheel is in the jail."""
    if "://" in name:
        raise PipRefusal(f"{name[:200]!r} names an address; only packages of an index are installed")
    if name.endswith(".whl"):
        if not name.endswith("-none-any.whl"):
            raise PipRefusal(f"{name[-200:]} is no wheel of pure Python; {_USE_NATIVE}", native=True)
        found = _host_path(folders, path)
        if not os.path.isfile(found):
            raise PipRefusal(f"the wheel {name[-200:]} cannot be read")
        return found
    if "/" in name or name.startswith("."):
        raise PipRefusal(
            f"{name[:200]} is no package or wheel; give a name, the path of a wheel, or a folder of wheels with "
            "--find-links FOLDER"
        )
    return name


def _host_path(folders: Folders, path: str) -> str:
    try:
        return folders.host_path(path)
    except OSError:
        return os.devnull


def _run(arguments: list[str], there: list[str], version: str, aside: str) -> None:
    found = importlib.util.find_spec("pip")
    if found is None or found.origin is None:
        raise PipRefusal("pip is not installed beside sandbox-kernel; install it there: python -m ensurepip")
    home = os.path.dirname(os.path.dirname(found.origin))
    order = {"pip": home, "paths": there, "version": version, "arguments": arguments, "folder": aside}
    env = {name: os.environ[name] for name in _PROXY if name in os.environ}
    env.update({"HOME": aside, "TMPDIR": aside, "PIP_CONFIG_FILE": os.devnull, "LANG": "C.UTF-8"})
    env["_PIP_USE_IMPORTLIB_METADATA"] = "1"  # some distributions choose the other backend
    with open(f"{aside}/order", "w+") as given, open(f"{aside}/said", "w+b") as said:
        json.dump(order, given)
        given.seek(0)
        command = [sys.executable, "-I", "-S", "-B", "-u", os.path.abspath(__file__)]
        if subprocess.run(command, stdin=given, stdout=said, stderr=said, env=env, cwd=aside).returncode:
            said.seek(0)
            _refuse(said.read(1 << 20).decode("utf-8", "replace"), f"{aside}/natives")


def _refuse(said: str, natives: str) -> None:
    """Raise the refusal of a pip that failed: with native packages if there are some, else in its own words."""
    last = said.partition("ERROR: ")[2] or "\n".join(said.splitlines()[-3:])
    lines = [line.strip() for line in last.splitlines() if line.strip()] or ["it was ended"]
    # A traceback is of our pip; its last line says what went wrong.
    words = "; ".join(lines if len(lines) <= _MOST_LINES else [lines[0], lines[-1]])[: _MOST_WORDS // 2]
    try:
        with open(natives) as file:
            native = json.load(file)
    except (OSError, ValueError):
        native = []
    if native:
        raise PipRefusal(f"{', '.join(native[:3])} has native code; {_USE_NATIVE} (pip: {words})", native=True)
    raise PipRefusal(f"pip could not install it: {words}")


def _check(target: str) -> None:
    """Refuse what is too large or has native code; remove what is no module: programs and ``.pth`` files."""
    shutil.rmtree(f"{target}/bin", ignore_errors=True)
    count = size = 0
    for place, _, names in os.walk(target):
        for name in names:
            path = os.path.join(place, name)
            count, size = count + 1, size + os.lstat(path).st_size
            if name.lower().endswith(_NATIVE):
                raise PipRefusal(
                    f"a wheel has native code ({os.path.relpath(path, target)}); {_USE_NATIVE}", native=True
                )
            if place == target and name.endswith(".pth"):
                os.unlink(path)
    if count > _MOST_FILES or size > _MOST_BYTES:
        raise PipRefusal(
            f"the packages have {count} files and {size >> 20} MB; at most {_MOST_FILES} files and "
            f"{_MOST_BYTES >> 20} MB are installed at once"
        )


def main() -> None:
    """Run pip in this process as the order on standard input says; exits with its code."""
    order = json.load(sys.stdin)
    version = order.get("version")
    if version is not None:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(hard, _MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    else:
        shown = os.listdir(order["shown"])
        order["paths"] = [*(os.path.join(order["shown"], name) for name in shown), *sys.path]
    import ssl

    sys.path.append(order["pip"])
    from pip._internal.cli.main import main as pip
    from pip._internal.commands import install as _loaded  # noqa: F401 - loaded while its folder is on the path
    from pip._internal.index.package_finder import LinkEvaluator
    from pip._internal.metadata.importlib import Environment
    from pip._internal.network import session
    from pip._internal.req.req_install import InstallRequirement
    from pip._internal.resolution.resolvelib.factory import Factory
    from pip._vendor import certifi
    from pip._vendor.packaging import markers

    # What is there already is the guest's, not what lies beside pip. It is listed and never imported: what pip itself
    # looks for in vain, such as ``_manylinux``, would be code of the guest that runs outside of WebAssembly.
    sys.path.remove(order["pip"])
    Environment.default = classmethod(lambda cls: cls(order["paths"]))  # type: ignore[method-assign,assignment]
    if version is not None:
        guest = {
            **markers.default_environment(),
            **dict.fromkeys(("python_full_version", "implementation_version"), version),
            **dict.fromkeys(("platform_release", "platform_version"), "0.0.0"),
            **dict.fromkeys(("platform_system", "sys_platform"), "wasi"),
            "platform_machine": "wasm32",
            "python_version": ".".join(version.split(".")[:2]),
        }
        markers.default_environment = lambda: guest
    # Its own tells an index about this machine, and reads files for it that Landlock does not show.
    session.user_agent = lambda: "pip"
    make, evaluate = Factory.__init__, LinkEvaluator.evaluate_link
    kinds: dict[str, dict[str, str]] = {}

    def knows_what_is_there(self: Factory, *arguments: object, **named: object) -> None:
        make(self, *arguments, **{**named, "ignore_installed": False})  # type: ignore[arg-type]

    def noted(self: LinkEvaluator, link: object) -> object:
        found = evaluate(self, link)  # type: ignore[arg-type]
        kinds.setdefault(self.project_name, {})[found[0].name] = str(link.filename)  # type: ignore[attr-defined]
        return found

    Factory.__init__ = knows_what_is_there  # type: ignore[method-assign]
    LinkEvaluator.evaluate_link = noted  # type: ignore[method-assign,assignment]
    # The guest removes an older version, once nothing can go wrong any more.
    InstallRequirement.uninstall = lambda *_, **__: None  # type: ignore[method-assign]
    # Files in WebAssembly have no modes, and walls without mounts let an ordinary user change none by its path.
    for name in ("chmod", "utime"):
        setattr(os, name, lambda *_, **__: None)
    sys.addaudithook(_no_process)
    arguments = order["arguments"]
    if roots := ssl.get_default_verify_paths().cafile:
        with open(f"{order['folder']}/roots.pem", "wb") as out:
            for name in (roots, certifi.where()):
                with open(name, "rb") as each:
                    out.write(each.read() + b"\n")
        arguments += ["--cert", out.name]
    code = pip(arguments)
    with open(f"{order['folder']}/natives", "w") as file:
        missing = [kind for kind in kinds.values() if "candidate" not in kind and "platform_mismatch" in kind]
        json.dump([kind["platform_mismatch"] for kind in missing], file)
    sys.exit(code)


def _no_process(event: str, _arguments: object) -> None:
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"):
        raise PermissionError("nothing is built here: only wheels are installed")


if __name__ == "__main__":
    main()
