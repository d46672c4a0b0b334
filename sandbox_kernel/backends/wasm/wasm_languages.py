"""Which languages the wasm backend has, which are ready, and how the others are made so."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.backends.wasm.module_key import EngineSwitches, engine_version
from sandbox_kernel.backends.wasm.prepare import OnProgress, PrepareProgress, Preparer, switches_of
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import find_toolchain, toolchain_availability
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.languages.support.guest_catalogue import WasmLanguage, catalogue
from sandbox_kernel.languages.support.recipe import Availability
from sandbox_kernel.model import Language


class WasmLanguages:
    """The languages of one backend; ``on_progress`` hears how far one is that is made ready in passing."""

    def __init__(self, store: WasmStore, enforcer: str, *, check_types: bool, on_progress: OnProgress | None) -> None:
        self.store = store
        self.check_types = check_types
        self.on_progress = on_progress
        self._preparer = Preparer(store, enforcer)

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``; what is not ready yet is made ready at its first use."""
        return tuple(name for name, found in self._languages().items() if found.available)

    def _languages(self) -> dict[Language, Availability]:
        languages = {Language.WASM: Availability(available=True, version=engine_version(), origin="wasmtime")}
        for language, guest in catalogue().items():
            ready = toolchain_availability(language) if guest.is_compiled else self._preparer.availability(guest)
            languages[language] = ready
        return languages

    def prepare(self, languages: Iterable[Language] = (), on_progress: OnProgress | None = None) -> None:
        """Make languages ready, all of the catalogue when none is named, with the checkers of types that they have."""
        tell = on_progress or self.on_progress
        for language in languages or self._can_be_made_ready():
            self.make_ready(language, tell)
            checked = self._guest(language).checked if language is not Language.WASM else None
            if checked is not None:
                self._preparer.prepare(checked, switches_of(checked, fuel=False), tell)

    def is_ready(self, language: Language, *, session: bool = False) -> bool:
        """Whether the first request has nothing to wait for; also where ``make_ready`` could do nothing about it."""
        if language is Language.WASM or language not in catalogue():
            return True
        guest = self._guest(language)
        if session and guest.session is not None:
            return True
        if guest.is_compiled:
            return not toolchain_availability(language).available or find_toolchain(language).is_warm
        return self._preparer.find(guest, switches_of(guest, fuel=False)) is not None

    def make_ready(self, language: Language, on_progress: OnProgress | None = None) -> None:
        """Make ready what the first request in a language would have to wait for."""
        if language is Language.WASM:
            return
        tell, guest = on_progress or self.on_progress, self._guest(language)
        if not guest.is_compiled:
            self._preparer.prepare(guest, switches_of(guest, fuel=False), tell)
            return
        if tell is not None:
            tell(PrepareProgress(language=str(language), text="building its libraries for WebAssembly", fraction=0.1))
        find_toolchain(language).warm()
        if tell is not None:
            tell(PrepareProgress(language=str(language), text=f"{guest.version} is ready", fraction=1.0))

    def prepare_science(self, on_progress: OnProgress | None = None) -> None:
        """Make the Python of sessions ready, with its scientific packages: minutes, once; never done in passing."""
        guest = catalogue()[Language.PYTHON].session
        assert guest is not None
        self._preparer.prepare(guest, switches_of(guest, fuel=False), on_progress or self.on_progress)

    def _can_be_made_ready(self) -> list[Language]:
        return [name for name, found in self._languages().items() if found.available]

    def ready(self, guest: WasmLanguage, switches: EngineSwitches) -> StoreEntry:
        """What a language needs, made now if it must be; what takes minutes is never made in passing."""
        if guest.entry == "turn" and self._preparer.find(guest, switches) is None:
            raise BackendUnavailable(
                f"{guest.language} sessions in WebAssembly need {guest.version}, which is compiled once, for minutes; "
                "do it beforehand with: sandbox-kernel prepare science (add --background to go on meanwhile)"
            )
        return self._preparer.prepare(guest, switches, self.on_progress)

    def _guest(self, language: Language) -> WasmLanguage:
        guest = catalogue().get(language)
        if guest is None:
            known = ", ".join(("wasm", *catalogue()))
            raise InvalidRequest(
                f"the wasm backend does not run {language}; it runs {known}; for {language} use backend='process'"
            )
        return guest.checked if self.check_types and guest.checked is not None else guest
