"""The languages of the wasm backend: which are prepared, and how to prepare the others."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.backends.wasm.module_key import EngineSwitches, engine_version
from sandbox_kernel.backends.wasm.prepare import OnProgress, PrepareProgress, Preparer, switches_of
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import find_toolchain, toolchain_availability
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.languages.guest_catalogue import WasmLanguage, catalogue
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import Language


class WasmLanguages:
    """The languages of one backend; ``on_progress`` is the progress callback of on-demand preparation."""

    def __init__(self, store: WasmStore, enforcer: str, *, check_types: bool, on_progress: OnProgress | None) -> None:
        self.store = store
        self.check_types = check_types
        self.on_progress = on_progress
        self._preparer = Preparer(store, enforcer)

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``; a language that is not prepared is prepared at its first use."""
        return tuple(name for name, found in self._languages().items() if found.available)

    def _languages(self) -> dict[Language, Availability]:
        languages = {Language.WASM: Availability(available=True, version=engine_version(), origin="wasmtime")}
        for language, guest in catalogue().items():
            ready = toolchain_availability(language) if guest.is_compiled else self._preparer.availability(guest)
            languages[language] = ready
        return languages

    def prepare(self, languages: Iterable[Language] = (), on_progress: OnProgress | None = None) -> None:
        """Prepare languages with their type checkers.

        Args:
            languages: The languages; all that can run here when empty.
            on_progress: Called with the progress; None for the callback of the backend.

        """
        tell = on_progress or self.on_progress
        for language in languages or self._can_be_made_ready():
            self.make_ready(language, tell)
            checked = self._guest(language).checked if language is not Language.WASM else None
            if checked is not None:
                self._preparer.prepare(checked, switches_of(checked, fuel=False), tell)

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
        return self._preparer.find(guest, switches_of(guest, fuel=False)) is not None

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
            self._preparer.prepare(guest, switches_of(guest, fuel=False), tell)
            return
        if tell is not None:
            tell(PrepareProgress(language=str(language), text="building its libraries for WebAssembly", fraction=0.1))
        find_toolchain(language).warm()
        if tell is not None:
            tell(PrepareProgress(language=str(language), text=f"{guest.version} is ready", fraction=1.0))

    def prepare_science(self, on_progress: OnProgress | None = None) -> None:
        """Prepare the Python of sessions with its scientific packages. Takes minutes, once; never done on demand.

        Args:
            on_progress: Called with the progress; None for the callback of the backend.

        """
        guest = catalogue()[Language.PYTHON].session
        assert guest is not None
        self._preparer.prepare(guest, switches_of(guest, fuel=False), on_progress or self.on_progress)

    def _can_be_made_ready(self) -> list[Language]:
        return [name for name, found in self._languages().items() if found.available]

    def is_prepared(self, guest: WasmLanguage) -> bool:
        """Return whether a guest is in the store."""
        return self._preparer.find(guest, switches_of(guest, fuel=False)) is not None

    def ready(self, guest: WasmLanguage, switches: EngineSwitches) -> StoreEntry:
        """Return the store entry of a language; prepares it if needed, unless that takes minutes."""
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
