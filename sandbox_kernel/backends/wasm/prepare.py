"""Prepares languages: fetches packages and compiles modules or makes images, once for each engine and processor.

Compiling an interpreter takes seconds to a minute and does not count as time of a cell. The first use of a language
waits for it and reports progress; ``prepare`` does it in advance. It runs in a jail. ``WasmLanguages`` has the
languages of the wasm backend: which are prepared, and how to prepare the others.

The name of a compiled module in the store depends on everything that changes the compiled code: the module itself, the
version and settings of the engine, the processor, and our own preparation of modules. The hash seed of a CPython that
has started is part of its image, so a new one is made each month.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import importlib.resources
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sandbox_kernel.backends.wasm.packages import OFFLINE, find_npm, package_files, package_name
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import find_toolchain, toolchain_availability
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILED,
    FACTS,
    PREPARE_DISK_MB,
    PREPARE_MEMORY_MB,
    PREPARE_S,
    EngineSwitches,
    GuestEnd,
    boot_fields,
    make_walls,
    preopens,
    prepare_job,
    read_file,
    read_report,
)
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import run_job
from sandbox_kernel.languages.guest_catalogue import WasmLanguage, catalogue
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant, SandboxPolicy

#: Guest programs whose code changes the compiled module.
_PREPARATION = (
    "wasm/binary.py",
    "wasm/rewrite.py",
    "wasm/engine.py",
)
#: How long an image is used, in seconds.
_LIFE_S = 30 * 86_400
#: Guest programs whose code changes an image.
_MAKERS = (
    "wasm/rewrite.py",
    "wasm/boot_python.py",
    "wasm/python_image.py",
)
#: Guest programs whose source is part of an image of QuickJS.
_IMAGE_PARTS = (
    "wasm/inside/javascript_boot.js",
    "wasm/quickjs.py",
    "wasm/rewrite.py",
    "wasm/embedder.py",
)


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """Progress of the preparation of a language; ``fraction`` is from 0 to 1."""

    language: str
    text: str
    fraction: float


#: Most bytes of images of one interpreter in the store: some versions and settings of the engine.
MOST_IMAGE_BYTES = 512 << 20

OnProgress = Callable[[PrepareProgress], None]


class WasmLanguages:
    """The languages of one backend; ``on_progress`` is the progress callback of on-demand preparation.

    Safe for several threads and processes: the others wait for the first that prepares a language.
    """

    def __init__(self, store: WasmStore, enforcer: str, *, check_types: bool, on_progress: OnProgress | None) -> None:
        self.store = store
        self.check_types = check_types
        self.on_progress = on_progress
        self._enforcer_name = enforcer

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``; a language that is not prepared is prepared at its first use."""
        return tuple(name for name, found in self._languages().items() if found.available)

    def _languages(self) -> dict[Language, Availability]:
        languages = {Language.WASM: Availability(available=True, version=engine_version(), origin="wasmtime")}
        for language, guest in catalogue().items():
            ready = toolchain_availability(language) if guest.is_compiled else self._availability(guest)
            languages[language] = ready
        return languages

    def prepare(self, languages: Iterable[Language] = (), on_progress: OnProgress | None = None) -> None:
        """Prepare languages with their type checkers.

        Args:
            languages: The languages; all that can run here when empty.
            on_progress: Called with the progress; None for the callback of the backend.

        """
        tell = on_progress or self.on_progress
        for language in languages or self.available_languages():
            self.make_ready(language, tell)
            checked = self._guest(language).checked if language is not Language.WASM else None
            if checked is not None:
                self._prepare(checked, switches_of(checked, fuel=False), tell)

    def is_ready(self, language: Language, *, session: bool = False) -> bool:
        """Return whether the first request of a language runs without preparation.

        Also true when ``make_ready`` cannot prepare it.

        Args:
            language: The language of the request.
            session: Whether the request is the first cell of a session.

        """
        if language is Language.WASM or language not in catalogue():
            return True
        guest = self._guest(language)
        if session and guest.session is not None and self.is_prepared(guest.session):
            return True
        if guest.is_compiled:
            return not toolchain_availability(language).available or find_toolchain(language).is_warm
        return self._find(guest, switches_of(guest, fuel=False)) is not None

    def make_ready(self, language: Language, on_progress: OnProgress | None = None) -> None:
        """Prepare a language, so that its first request need not wait.

        Args:
            language: The language.
            on_progress: Called with the progress; None for the callback of the backend.

        """
        if language is Language.WASM:
            return
        tell, guest = on_progress or self.on_progress, self._guest(language)
        if not guest.is_compiled:
            self._prepare(guest, switches_of(guest, fuel=False), tell)
            return
        if tell is not None:
            tell(PrepareProgress(language=str(language), text="building its libraries for WebAssembly", fraction=0.1))
        find_toolchain(language).runtime()
        if tell is not None:
            tell(PrepareProgress(language=str(language), text=f"{guest.version} is ready", fraction=1.0))

    def prepare_science(self, on_progress: OnProgress | None = None) -> None:
        """Prepare the Python of sessions with its scientific packages. Takes minutes, once; never done on demand.

        Args:
            on_progress: Called with the progress; None for the callback of the backend.

        """
        guest = catalogue()[Language.PYTHON].session
        assert guest is not None
        self._prepare(guest, switches_of(guest, fuel=False), on_progress or self.on_progress)

    def is_prepared(self, guest: WasmLanguage) -> bool:
        """Return whether a guest is in the store."""
        return self._find(guest, switches_of(guest, fuel=False)) is not None

    def ready(self, guest: WasmLanguage, switches: EngineSwitches) -> StoreEntry:
        """Return the store entry of a language; prepares it if needed, unless that takes minutes."""
        if guest.entry == "turn" and self._find(guest, switches) is None:
            raise BackendUnavailable(
                f"{guest.language} sessions in WebAssembly need {guest.version}, which is compiled once, for minutes; "
                "do it beforehand with: sandbox-kernel prepare science (add --background to go on meanwhile)"
            )
        return self._prepare(guest, switches, self.on_progress)

    def _guest(self, language: Language) -> WasmLanguage:
        guest = catalogue().get(language)
        if guest is None:
            known = ", ".join(("wasm", *catalogue()))
            raise InvalidRequest(
                f"the wasm backend does not run {language}; it runs {known}; for {language} use backend='process'"
            )
        return guest.checked if self.check_types and guest.checked is not None else guest

    def _find(self, guest: WasmLanguage, switches: EngineSwitches) -> StoreEntry | None:
        return self.store.find(guest_name(guest, switches))

    def _availability(self, guest: WasmLanguage) -> Availability:
        """Return whether the language can run here, and what its first use costs."""
        if self._find(guest, switches_of(guest, fuel=False)) is not None:
            return Availability(available=True, version=guest.version, origin="ready")
        missing = [p for p in guest.packages if self.store.find(package_name(p)) is None]
        try:
            if missing and not os.environ.get(OFFLINE) and any(p.registry == "npm" for p in missing):
                find_npm()
        except BackendUnavailable as error:
            return Availability(available=False, reason="not prepared", remedy=str(error))
        return Availability(available=True, version=guest.version, origin="made ready at first use")

    def _prepare(self, guest: WasmLanguage, switches: EngineSwitches, on_progress: OnProgress | None) -> StoreEntry:
        """Prepare a language; returns at once when it is prepared already."""

        def tell(text: str, fraction: float) -> None:
            if on_progress is not None:
                on_progress(PrepareProgress(language=str(guest.language), text=text, fraction=fraction))

        ready = self._find(guest, switches)
        if ready is not None:
            return ready
        with self._alone(guest):
            ready = self._find(guest, switches)
            if ready is None:
                if guest.cost:
                    tell(f"{guest.version} takes {guest.cost}", 0.0)
                packages = guest.packages
                for index, package in enumerate(packages):
                    tell(f"fetching {package.name} {package.version}", 0.4 * index / len(packages))
                    package_files(self.store, package)
                files = self._built(guest, switches, tell)
                self._forget_old_images(guest)
                ready = self.store.add(guest_name(guest, switches), files)
            tell(f"{guest.version} is ready", 1.0)
            return ready

    def _forget_old_images(self, guest: WasmLanguage) -> None:
        """Remove the images of earlier months, and the least recently used ones of this month beyond a size."""
        if not guest.image:
            return
        prefix, now = image_prefix(guest), f"{image_prefix(guest)}{age_mark()}-"
        for name in self.store.names():
            if name.startswith(prefix) and not name.startswith(now):
                self.store.remove(name)
        self.store.prune(prefix, MOST_IMAGE_BYTES)

    def _built(
        self, guest: WasmLanguage, switches: EngineSwitches, tell: Callable[[str, float], None]
    ) -> dict[str, bytes]:
        """Build in another thread; this one reports progress by the usual duration meanwhile."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-prepare") as thread:
            work, seconds = thread.submit(self._build, guest, switches), 0
            while True:
                tell(f"compiling {guest.version}", 0.4 + 0.55 * min(1.0, seconds / guest.compile_s))
                try:
                    return work.result(timeout=1.0)
                except TimeoutError:
                    if work.done():
                        raise
                    seconds += 1

    def _build(self, guest: WasmLanguage, switches: EngineSwitches) -> dict[str, bytes]:
        assert guest.package is not None
        module = package_files(self.store, guest.package).file(guest.file)
        task, outs, given = "compile", {"out": COMPILED}, [module]
        fields: dict[str, object] = {"source": module}
        if guest.image:
            task, outs = "boot", {**outs, "facts": FACTS}
            fields |= boot_fields(guest)
        elif guest.entry in ("command", "turn"):
            fields |= {"trusted": True, "plain": guest.entry == "turn"}
        else:
            task, outs = "bake", {**outs, "facts": FACTS}
            plans = []
            for library in guest.libraries:
                path = library.file
                if library.package is not None:
                    path = package_files(self.store, library.package).file(library.file)
                    given.append(path)
                plans.append(library.to_plan(path))
            fields |= {"libraries": plans, "glue": guest.glue, "glue_names": list(guest.functions)}
        return run_preparation(self._enforcer_name, task, switches, fields, outs, given)

    @contextlib.contextmanager
    def _alone(self, guest: WasmLanguage) -> Iterator[None]:
        with open(os.path.join(self.store.folder, f".lock-{guest.language}"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def run_preparation(
    enforcer: str,
    task: str,
    switches: EngineSwitches,
    fields: Mapping[str, object],
    outs: Mapping[str, str],
    given: Sequence[str],
    *,
    folders: Sequence[Mapping[str, object]] | None = None,
    timeout_s: float = PREPARE_S,
) -> dict[str, bytes]:
    """Make files of the store, in a jail of its own; returns them by name.

    Args:
        enforcer: The name of the enforcer.
        task: The kind of the plan; the plans are in ``guest/wasm/plan.py``.
        switches: The settings of the engine.
        fields: The other fields of the plan.
        outs: The files to make, by the field of the plan that names each.
        given: Paths of the store that the jail sees.
        folders: Folders of a guest besides those that every guest has; None for a task without a guest.
        timeout_s: How long it may take.

    """
    limits, grants = Limits(disk_mb=PREPARE_DISK_MB), [Grant(path, path, False) for path in given]
    walls = make_walls(limits, PREPARE_MEMORY_MB, SandboxPolicy(), enforcer, grants)
    # Not from the pool: these walls are not used again.
    jail = Pool(0).take(walls)
    try:
        made = {field: f"{jail.places.work}/{name}" for field, name in outs.items()}
        plan = {"task": task, "switches": switches.to_dict(), **fields, **made}
        if folders is not None:
            plan["preopens"] = [*preopens(jail, sees_cell=True), *folders]
        outcome = run_job(jail, prepare_job(jail, plan, timeout_s))
        ending = read_report(outcome.report)
        if ending is None or ending.end is not GuestEnd.COMPILED:
            words = ending.message if ending is not None else outcome.stderr.text.strip()[-500:]
            stopped = f"stopped at the {outcome.stopped_by} limit; " if outcome.stopped_by else ""
            raise BackendUnavailable(f"the language could not be compiled here: {stopped}{words or outcome.exits}")
        return {name: read_file(jail.box_fd, name) for name in outs.values()}
    finally:
        jail.destroy()
        jail.forget()


@functools.lru_cache(maxsize=1)
def engine_version() -> str:
    """Return the version of the installed wasmtime without importing it."""
    try:
        return importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise BackendUnavailable("wasmtime is not installed; install it with: pip install wasmtime") from None


@functools.lru_cache(maxsize=1)
def _surroundings() -> str:
    guest = importlib.resources.files("sandbox_kernel") / "guest"
    parts = [engine_version(), platform.machine(), _processor_features()]
    parts += [hashlib.sha256((guest / name).read_bytes()).hexdigest() for name in _PREPARATION]
    return "\n".join(parts)


def _processor_features() -> str:
    """Return the features of this processor. Compiled code depends on them, and machines may share a home folder."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("flags", "features")):
                    return " ".join(sorted(line.split(":", 1)[1].split()))
    except OSError:
        pass
    return platform.processor()


def compiled_name(prefix: str, sha256: str, switches: EngineSwitches) -> str:
    """Return the name of a compiled module in the store."""
    settings = json.dumps(switches.to_dict(), sort_keys=True)
    setting = hashlib.sha256(f"{_surroundings()}\n{settings}".encode()).hexdigest()
    return f"{prefix}{sha256[:40]}-{setting[:24]}"


def image_parts(guest: WasmLanguage) -> list[str]:
    """Return what decides the content of an image, besides the module; nothing for a language without one."""
    if not guest.image:
        return []
    folder = importlib.resources.files("sandbox_kernel") / "guest"
    names = (*_MAKERS, *guest.image.values())
    return [
        *(hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names),
        json.dumps(boot_fields(guest), sort_keys=True),
    ]


def age_mark(now: float | None = None) -> str:
    """Return the part of an image's name that changes when a new one is due."""
    return f"{int((time.time() if now is None else now) // _LIFE_S)}"


def switches_of(guest: WasmLanguage, *, fuel: bool) -> EngineSwitches:
    """Return the engine settings of a language."""
    return EngineSwitches(fuel=fuel, stack_bytes=guest.stack_bytes, exceptions=guest.entry == "turn")


def guest_digest(guest: WasmLanguage) -> str:
    """Return a digest of all parts of a language. Saved memory of a guest fits guests with the same digest."""
    assert guest.package is not None
    parts = [guest.entry, guest.package.sha256, guest.file]
    if guest.boot is not None:
        boot = importlib.resources.files("sandbox_kernel") / "guest" / guest.boot
        parts.append(hashlib.sha256(boot.read_bytes()).hexdigest())
    parts += image_parts(guest)
    if guest.entry == "quickjs":
        folder = importlib.resources.files("sandbox_kernel") / "guest"
        ours = [library.file for library in guest.libraries if library.package is None]
        names = [*_IMAGE_PARTS, *([guest.glue] if guest.glue else []), *ours]
        parts += [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]
        parts += [json.dumps(library.to_plan(library.identity)) for library in guest.libraries]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def guest_name(guest: WasmLanguage, switches: EngineSwitches) -> str:
    """Return the name of a prepared language in the store; it depends on its parts and the engine."""
    assert guest.package is not None
    # Languages with the same module share its compiled form.
    owner = str(guest.language) if guest.entry == "quickjs" else guest.package.key
    if guest.image:
        return compiled_name(f"{image_prefix(guest)}{age_mark()}-", compiled_digest(guest), switches)
    return compiled_name(f"guest-{owner}-", compiled_digest(guest), switches)


def image_prefix(guest: WasmLanguage) -> str:
    """Return the beginning of the names of all images of a guest's module in the store."""
    assert guest.package is not None
    return f"guest-{guest.package.key}-image"


def compiled_digest(guest: WasmLanguage) -> str:
    """Return a digest of the parts that are compiled; programs that are read at the start do not count."""
    return guest_digest(replace(guest, boot=None))
