"""Prepares languages: fetches packages and compiles modules or makes images, once for each engine and processor."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import json
import os
import platform
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sandbox_kernel.backends.wasm import wasm_job
from sandbox_kernel.backends.wasm.packages import OFFLINE, find_npm, package_files, package_name
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import find_toolchain, toolchain_availability
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.enforcer import Enforcer
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.proof_record import read_fact
from sandbox_kernel.jail.run_job import run_job
from sandbox_kernel.languages.guest_catalogue import WasmLanguage, catalogue
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant, SandboxPolicy
from sandbox_kernel.util.own_folder import LockedFolder

#: Guest programs whose code changes every compiled module, and those whose code changes an image.
_COMPILERS = ("wasm/binary.py", "wasm/rewrite.py", "wasm/engine.py")
_IMAGE_MAKERS = (
    "wasm/rewrite.py", "wasm/python_image.py", "wasm/quickjs.py", "wasm/embedder.py",
    "wasm/inside/javascript_boot.js",
)  # fmt: skip
#: Where the large Python has its library, and the data of matplotlib, which opens them by name: in the jail's own
#: archive, and in a folder of the module's entry.
_LIBRARY, _ARCHIVE = "/usr/local/lib", "python315.zip"
_FIGURES, _FIGURE_DATA = "figures", "matplotlib/mpl-data"
#: Most bytes of images of one interpreter in the store: some versions and settings of the engine.
_MOST_IMAGE_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """Progress of the preparation of a language; ``fraction`` is from 0 to 1."""

    language: str
    text: str
    fraction: float


OnProgress = Callable[[PrepareProgress], None]


class WasmLanguages:
    """The languages of one backend. Threads and processes wait for the first that prepares a language."""

    store: WasmStore
    on_progress: OnProgress | None
    enforcer: Enforcer

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``; a language that is not prepared is prepared at its first use."""
        return tuple(name for name, found in self._languages().items() if found.available)

    def _languages(self) -> dict[Language, Availability]:
        own = Availability(available=True, version=engine_version(), origin="wasmtime")
        return {Language.WASM: own, **{name: self._availability(guest) for name, guest in catalogue().items()}}

    def _availability(self, guest: WasmLanguage) -> Availability:
        if guest.is_compiled:
            return toolchain_availability(guest.language)
        if self.is_prepared(guest):
            return Availability(available=True, version=guest.version, origin="ready")
        missing = [p for p in guest.packages if self.store.find(package_name(p)) is None]
        try:
            if missing and not os.environ.get(OFFLINE) and any(p.registry == "npm" for p in missing):
                find_npm()
        except BackendUnavailable as error:
            return Availability(available=False, reason="not prepared", remedy=str(error))
        return Availability(available=True, version=guest.version, origin="made ready at first use")

    def prepare(self, languages: Iterable[Language] = (), on_progress: OnProgress | None = None) -> None:
        """Prepare languages: all that can run here when none is named."""
        for language in languages or self.available_languages():
            self.make_ready(language, on_progress)

    def is_ready(self, language: Language, *, session: bool = False) -> bool:
        """Return whether the first request or cell needs no preparation, or ``make_ready`` cannot prepare it."""
        if language is Language.WASM or language not in catalogue():
            return True
        guest = self._guest(language)
        if session and guest.session is not None and self.is_prepared(guest.session):
            return True
        if guest.is_compiled:
            return not toolchain_availability(language).available or find_toolchain(language).is_warm
        return self.is_prepared(guest)

    def make_ready(self, language: Language, on_progress: OnProgress | None = None) -> None:
        """Prepare a language, so that its first request need not wait."""
        if language is Language.WASM:
            return
        guest, tell = self._guest(language), self._teller(language, on_progress)
        if not guest.is_compiled:
            self._prepare(guest, switches_of(guest), on_progress)
            return
        tell("building its libraries for WebAssembly", 0.1)
        find_toolchain(language).runtime()
        tell(f"{guest.version} is ready", 1.0)

    def prepare_science(self, on_progress: OnProgress | None = None) -> None:
        """Prepare the Python of sessions with its scientific packages, for minutes; never done on demand."""
        guest = catalogue()[Language.PYTHON].session
        assert guest is not None
        self._prepare(guest, switches_of(guest), on_progress)

    def is_prepared(self, guest: WasmLanguage) -> bool:
        """Return whether a guest is in the store; of the large Python its module, whose image is made in seconds."""
        return self.store.find(guest_name(module_of(guest), switches_of(guest))) is not None

    def own_folders(self, guest: WasmLanguage) -> dict[str, str]:
        """Return the folders of a guest whose library is not in its memory: its names, and ours (empty: a new one)."""
        if guest.entry != "turn" or guest.package is None:
            return {}
        module = self.ready(module_of(guest), switches_of(guest))
        figures = f"{_LIBRARY}/{_ARCHIVE}/{_FIGURE_DATA}"
        library = package_files(self.store, guest.package).path
        return {_LIBRARY: library, figures: os.path.join(module.path, _FIGURES), "/tmp": ""}

    def ready(self, guest: WasmLanguage, switches: wasm_job.EngineSwitches) -> StoreEntry:
        """Return the store entry of a language; prepares it if needed, unless that takes minutes."""
        if guest.entry == "turn" and not self.is_prepared(guest):
            raise BackendUnavailable(
                f"{guest.language} sessions in WebAssembly need {guest.version}, which is compiled once, for minutes; "
                "do it beforehand with: sandbox-kernel prepare science"
            )
        return self._prepare(guest, switches)

    def _guest(self, language: Language) -> WasmLanguage:
        guest = catalogue().get(language)
        if guest is None:
            known = ", ".join(("wasm", *catalogue()))
            raise InvalidRequest(
                f"the wasm backend does not run {language}; it runs {known}; for {language} use backend='process'"
            )
        return guest

    def _teller(self, language: Language, on_progress: OnProgress | None) -> Callable[[str, float], None]:
        listener = on_progress or self.on_progress

        def tell(text: str, fraction: float) -> None:
            if listener is not None:
                listener(PrepareProgress(language=str(language), text=text, fraction=fraction))

        return tell

    def _prepare(
        self, guest: WasmLanguage, switches: wasm_job.EngineSwitches, on_progress: OnProgress | None = None
    ) -> StoreEntry:
        """Prepare a language; returns at once when it is prepared already."""
        name, tell = guest_name(guest, switches), self._teller(guest.language, on_progress)
        ready = self.store.find(name)
        if ready is not None:
            return ready
        with LockedFolder.alone(os.path.join(self.store.folder, f".making-{_prefix(guest)}")):
            ready = self.store.find(name)
            if ready is None:
                if guest.cost and not guest.image:
                    tell(f"{guest.version} takes {guest.cost}", 0.0)
                for index, package in enumerate(guest.packages):
                    tell(f"fetching {package.name} {package.version}", 0.4 * index / len(guest.packages))
                    package_files(self.store, package)
                tell(f"compiling {guest.version}", 0.4)
                files = self._build(guest, switches)
                if guest.image:
                    self.store.prune(_prefix(guest), _MOST_IMAGE_BYTES)
                ready = self.store.add(name, files)
            tell(f"{guest.version} is ready", 1.0)
            return ready

    def _build(self, guest: WasmLanguage, switches: wasm_job.EngineSwitches) -> dict[str, bytes]:
        """Make the files of a language in a jail of its own; returns them by name."""
        assert guest.package is not None
        package = package_files(self.store, guest.package)
        module, files = package.file(guest.file), {}
        if module_of(guest) is not guest:
            module = self._prepare(module_of(guest), switches).file(wasm_job.COMPILED)
        elif guest.entry == "turn":
            files = _figures(package.file(_ARCHIVE))
        outs, given = {"out": wasm_job.COMPILED}, [module]
        plan: dict[str, object] = {"task": "compile", "source": module, "switches": switches}
        if guest.image:
            folders = self.own_folders(guest)
            plan |= {"task": "boot", "programs": dict(guest.image), "folders": folders}
            if guest.entry == "turn":
                plan["compiled"], outs["out"] = True, wasm_job.MEMORY
                given += filter(None, folders.values())
        elif guest.entry in ("command", "turn"):
            plan |= {"trusted": True, "plain": guest.entry == "turn"}
        else:
            outs["facts"] = wasm_job.FACTS
            plans = []
            for library in guest.libraries:
                path = library.file
                if library.package is not None:
                    path = package_files(self.store, library.package).file(library.file)
                    given.append(path)
                plans.append(library.to_plan(path))
            plan |= {"task": "bake", "libraries": plans, "glue": guest.glue, "glue_names": list(guest.functions)}
        limits, grants = Limits(disk_mb=wasm_job.PREPARE_DISK_MB), [Grant(path, path, False) for path in given]
        walls = wasm_job.make_walls(limits, wasm_job.PREPARE_MEMORY_MB, SandboxPolicy(), self.enforcer.name, grants)
        # Not from the pool of runs: these walls are not used again.
        with wasm_job.taken(Pool(0), walls) as jail:
            plan |= {field: f"{jail.places.work}/{name}" for field, name in outs.items()}
            outcome = run_job(
                jail,
                wasm_job.making_job(jail, plan, timeout_s=wasm_job.PREPARE_S, memory_mb=wasm_job.PREPARE_MEMORY_MB),
            )
            ending = wasm_job.read_report(outcome.report)
            if ending is None or ending.end is not wasm_job.GuestEnd.COMPILED:
                words = ending.message if ending is not None else outcome.stderr.text.strip()[-500:]
                stopped = f"stopped at the {outcome.stopped_by} limit; " if outcome.stopped_by else ""
                raise BackendUnavailable(f"the language could not be compiled here: {stopped}{words or outcome.exits}")
            return {**files, **{name: wasm_job.read_file(jail.box_fd, name) for name in outs.values()}}


def _figures(archive: str) -> dict[str, bytes]:
    """Return the data files of matplotlib, which are an archive in the library's."""
    with zipfile.ZipFile(archive) as whole, whole.open(f"{_FIGURE_DATA}.zip") as inner, zipfile.ZipFile(inner) as data:
        return {f"{_FIGURES}/{name}": data.read(name) for name in data.namelist() if not name.endswith("/")}


def module_of(guest: WasmLanguage) -> WasmLanguage:
    """Return the part of a language that has its compiled module: of the large Python it without its image."""
    return replace(guest, image={}) if guest.entry == "turn" and guest.image else guest


@functools.lru_cache(maxsize=1)
def engine_version() -> str:
    """Return the version of the installed wasmtime without importing it."""
    try:
        return importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise BackendUnavailable("wasmtime is not installed; install it with: pip install wasmtime") from None


@functools.lru_cache(maxsize=1)
def _surroundings() -> str:
    return "\n".join([engine_version(), platform.machine(), _processor_features(), *map(_digest, _COMPILERS)])


@functools.cache
def _digest(program: str) -> str:
    return hashlib.sha256((importlib.resources.files("sandbox_kernel") / "guest" / program).read_bytes()).hexdigest()


def _processor_features() -> str:
    """Return the features of this processor. Compiled code depends on them, and machines may share a home folder."""
    for line in read_fact("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("flags", "features")):
            return " ".join(sorted(line.split(":", 1)[1].split()))
    return platform.processor()


def compiled_name(prefix: str, sha256: str, switches: wasm_job.EngineSwitches) -> str:
    """Return the name of a compiled module in the store. It depends on all that changes the compiled code."""
    settings = json.dumps(switches, sort_keys=True)
    setting = hashlib.sha256(f"{_surroundings()}\n{settings}".encode()).hexdigest()
    return f"{prefix}{sha256[:40]}-{setting[:24]}"


def switches_of(guest: WasmLanguage, *, fuel: bool = False) -> wasm_job.EngineSwitches:
    """Return the engine settings of a language."""
    return {"fuel": fuel, "stack_bytes": guest.stack_bytes, "exceptions": guest.entry == "turn"}


def guest_digest(guest: WasmLanguage) -> str:
    """Return a digest of a language, for saved memory."""
    assert guest.package is not None
    parts: list[object] = [guest.entry, guest.package.sha256, guest.file, dict(guest.image)]
    programs = [*guest.image.values()]
    if guest.image or guest.entry == "quickjs":
        programs += _IMAGE_MAKERS
    if guest.glue is not None:
        programs.append(guest.glue)
    for library in guest.libraries:
        programs += [library.file] if library.package is None else []
        parts.append(library.to_plan(f"{library.package.sha256 if library.package else ''} {library.file}"))
    return hashlib.sha256(json.dumps([*parts, *map(_digest, programs)]).encode()).hexdigest()


def _prefix(guest: WasmLanguage) -> str:
    """Return the beginning of the names of a language in the store; languages with the same module share it."""
    assert guest.package is not None
    owner = str(guest.language) if guest.entry == "quickjs" else guest.package.key
    return f"guest-{owner}-image-" if guest.image else f"guest-{owner}-"


def guest_name(guest: WasmLanguage, switches: wasm_job.EngineSwitches) -> str:
    """Return the name of a prepared language in the store; it depends on its parts and the engine."""
    return compiled_name(_prefix(guest), guest_digest(guest), switches)
