"""The capability report: what is enforced on this host, as values and text. Each line was measured by a canary."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from sandbox_kernel.backends.base import SandboxBackend
from sandbox_kernel.backends.probes.canaries import Measurement, OnProgress
from sandbox_kernel.backends.probes.capabilities import group_notes, measurements
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.languages.recipe import MODULES, Availability, availability
from sandbox_kernel.receipt import describe_isolation
from sandbox_kernel.report.page import MARK, WORD, report_explorer, report_page

AREAS = ("files", "processes", "network", "kernel", "limits", "gpu")

#: By capability: area and name of its line, for backends that summarise canaries themselves, and words for models.
PROMISES = {
    "filesystem_read_isolation": ("files", "read outside", "no reading of host files"),
    "filesystem_write_isolation": ("files", "write outside", "no writing of host files"),
    "environment_isolation": ("processes", "inherit the host's environment", "no host environment"),
    "network_isolation": ("network", "open a connection", "network isolation"),
    "syscall_filter": ("kernel", "make a system call", "system call filter"),
    "timeout": ("limits", "time", "time limit"),
    "memory": ("limits", "memory", "memory limit"),
    "cpu": ("limits", "CPU time", "CPU limit"),
    "processes": ("limits", "processes", "process limit"),
    "disk": ("limits", "disk", "disk limit"),
    "output": ("limits", "output", "output limit"),
}


@dataclass(frozen=True, kw_only=True)
class CapabilityReport:
    """What one backend enforces on this host under one policy."""

    backend: str
    isolation: str
    host: str
    lines: tuple[Measurement, ...]
    languages: Mapping[str, Availability] = field(default_factory=dict)
    #: Known weaknesses of these walls, besides what was measured.
    weaknesses: tuple[str, ...] = ()
    #: Names of files that programs do not see in a folder that they work on (``here``): places of secrets.
    hidden: tuple[str, ...] = ()
    #: When the lines were measured, in seconds since 1970; never before this boot.
    measured_at: float = 0.0
    #: Measures the same walls again and returns a new report; None where that is not possible.
    again: Callable[[OnProgress], CapabilityReport] | None = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Drop ``again``: another process cannot measure these walls."""
        return {**self.__dict__, "again": None}

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain JSON values."""
        return {
            "backend": self.backend,
            "isolation": self.isolation,
            "host": self.host,
            "lines": [asdict(line) for line in self.lines],
            "languages": {name: asdict(found) for name, found in self.languages.items()},
            "weaknesses": list(self.weaknesses),
            **({"hidden": list(self.hidden)} if self.hidden else {}),
            "measured_at": self.measured_at,
        }

    def require(self, *names: str) -> CapabilityReport:
        """Return this report; raise ``PolicyViolation`` unless each named area (``"network"``) or line is enforced."""
        for name in names:
            asked = [line for line in self.lines if name in (line.area, line.name)]
            if not asked:
                known = sorted({line.area for line in self.lines} | {line.name for line in self.lines})
                raise PolicyViolation(f"the report has no line {name!r}; known: {', '.join(known)}")
            for line in asked:
                if not line.kept:
                    found = f"{line.name!r} is {WORD[line.enforced]} ({line.mechanism}: {line.evidence})"
                    raise PolicyViolation(f"{name} is required and {found}")
        return self

    def __str__(self) -> str:
        rows = [f"{self.backend} · {describe_isolation(self.isolation)} · {self.host}"]
        area = ""
        widest = max((len(line.mechanism) for line in self.lines), default=0)
        for line in self.lines:
            if line.area != area:
                area = line.area
                rows.append(f"\n{area}")
            rows.append(f"  {MARK[line.enforced]} {line.name:34} {line.mechanism:{widest}} {line.evidence}")
        rows.append("\nlanguages")
        for name, found in self.languages.items():
            text = f"{found.version} ({found.origin})" if found.available else f"{found.reason}; {found.remedy}"
            rows.append(f"  {MARK[found.available]} {name:34} {text}")
        if self.weaknesses:
            rows.append("\nknown weaknesses")
            rows += [f"  - {text}" for text in self.weaknesses]
        if self.hidden:
            rows.append("\nhidden in the folder that programs work on")
            rows.append(f"  {', '.join(self.hidden)}")
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        return report_page(self.to_dict())

    def as_widget(self) -> object:
        """Return the report as an ipywidget whose button *Run again* measures again."""
        again = self.again
        measure = None if again is None else lambda on_progress: again(on_progress).to_dict()
        return report_explorer(self.to_dict(), measure)


def make_report(
    backend: ProcessBackend, *, again: bool = False, on_progress: OnProgress | None = None
) -> CapabilityReport:
    """Measure, once for each boot or ``again``, and return the report."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-languages") as thread:
        # Asking every compiler for its version takes as long as the canaries, so both run at the same time.
        asked = thread.submit(lambda: {str(name): availability(backend.config, name) for name in MODULES})
        found = measurements(backend, again=again, on_progress=on_progress)
        languages = asked.result()
    lines = sorted(found.lines, key=lambda line: AREAS.index(line.area))
    no_walls = ("no enforcer: programs may do whatever the user who started them may do",)
    return CapabilityReport(
        backend=backend.name,
        isolation=backend.isolation_class,
        host=_host(),
        lines=tuple(lines),
        languages=languages,
        measured_at=found.at,
        again=lambda progress: make_report(backend, again=True, on_progress=progress),
        weaknesses=(*(backend.enforcer.weaknesses if backend.enforcer is not None else no_walls), *group_notes()),
    )


def summed_report(backend: SandboxBackend, *, host: str = "", weaknesses: tuple[str, ...] = ()) -> CapabilityReport:
    """Return the report of a backend that summarises its own measurements (wasm, dask)."""
    found = backend.capabilities()
    lines = []
    for name, promise in found.enforced_limits.items():
        area, tried, _ = PROMISES[name]
        lines.append(Measurement(area, tried, promise.enforced, promise.mechanism, promise.evidence))
    return CapabilityReport(
        backend=backend.name,
        isolation=found.isolation_class,
        host=host or _host(),
        lines=tuple(sorted(lines, key=lambda line: AREAS.index(line.area))),
        languages={str(name): ready for name, ready in found.languages.items()},
        measured_at=time.time(),
        weaknesses=weaknesses,
    )


def _host() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"
