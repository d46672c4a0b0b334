"""What the process backend enforces on this host, measured in a jail of the very kind that runs requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits
from sandbox_kernel.languages.registry import RECIPES, availability

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend


def process_capabilities(backend: ProcessBackend) -> BackendCapabilities:
    """Measured once a process for each kind of walls."""
    languages = {language: availability(backend.config, language) for language in RECIPES}
    return BackendCapabilities(
        supported_languages=tuple(name for name, found in languages.items() if found.available),
        isolation_class=backend.isolation_class,
        enforced_limits=EnforcedLimits(),
        languages=languages,
    )
