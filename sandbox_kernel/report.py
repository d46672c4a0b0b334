"""The capability report: what is enforced here, each line measured by attacking ourselves.

Values and their drawings only; ``backends/canaries.py`` does the attacking.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape

from sandbox_kernel.backends.canaries import Measurement
from sandbox_kernel.backends.capabilities import measurements
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.languages.registry import RECIPES, availability

_MARK = {True: "✓", False: "✗", None: "?"}
_WORD = {True: "enforced", False: "not enforced", None: "not testable here"}
_COLOUR = {True: "#2e7d32", False: "#c62828", None: "#9e6c00"}
_NO_WALLS = ("no enforcer: programs may do whatever the user who started them may do",)


@dataclass(frozen=True, kw_only=True)
class CapabilityReport:
    """What one backend enforces on this host under one policy."""

    backend: str
    isolation: str
    host: str
    lines: tuple[Measurement, ...]
    languages: Mapping[str, Availability] = field(default_factory=dict)
    #: What these walls are known not to hold, on top of what was measured.
    weaknesses: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "backend": self.backend,
            "isolation": self.isolation,
            "host": self.host,
            "lines": [asdict(line) for line in self.lines],
            "languages": {name: asdict(found) for name, found in self.languages.items()},
            "weaknesses": list(self.weaknesses),
        }

    def require(self, *names: str) -> CapabilityReport:
        """Fail closed: every named area or line must be enforced, else ``PolicyViolation`` quotes what is missing."""
        for name in names:
            asked = [line for line in self.lines if name in (line.area, line.name)]
            if not asked:
                known = sorted({line.area for line in self.lines} | {line.name for line in self.lines})
                raise PolicyViolation(f"the report has no line {name!r}; known: {', '.join(known)}")
            for line in asked:
                if not line.enforced:
                    found = f"{line.name!r} is {_WORD[line.enforced]} ({line.mechanism}: {line.evidence})"
                    raise PolicyViolation(f"{name} is required and {found}")
        return self

    def __str__(self) -> str:
        """The report for terminals."""
        rows = [f"{self.backend} · {self.isolation} · {self.host}"]
        area = ""
        for line in self.lines:
            if line.area != area:
                area = line.area
                rows.append(f"\n{area}")
            rows.append(f"  {_MARK[line.enforced]} {line.name:34} {line.mechanism:40} {line.evidence}")
        rows.append("\nlanguages")
        for name, found in self.languages.items():
            told = f"{found.version} ({found.origin})" if found.available else f"{found.reason}; {found.remedy}"
            rows.append(f"  {_MARK[found.available]} {name:34} {told}")
        if self.weaknesses:
            rows.append("\nknown weaknesses")
            rows += [f"  - {text}" for text in self.weaknesses]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        """The report as one static table: no script, every value escaped."""
        rows = "".join(
            f"<tr><td>{escape(line.area)}</td><td>{escape(line.name)}</td>"
            f'<td style="color:{_COLOUR[line.enforced]}" title="{_WORD[line.enforced]}">{_MARK[line.enforced]}</td>'
            f"<td>{escape(line.mechanism)}</td><td>{escape(line.evidence)}</td></tr>"
            for line in self.lines
        )
        languages = "".join(
            f'<tr><td>language</td><td>{escape(name)}</td><td style="color:{_COLOUR[found.available]}">'
            f"{_MARK[found.available]}</td><td>{escape(found.version)}</td>"
            f"<td>{escape(found.origin or f'{found.reason}; {found.remedy}')}</td></tr>"
            for name, found in self.languages.items()
        )
        head = "<tr><th>area</th><th>tried</th><th>stopped</th><th>by</th><th>what came back</th></tr>"
        title = escape(f"{self.backend} · {self.isolation} · {self.host}")
        # What came back was said by a sandbox: it must not become a formula, in which MathJax makes links.
        opening = '<table class="mathjax_ignore tex2jax_ignore" style="font-size:90%">'
        table = f"{opening}<caption>{title}</caption>{head}{rows}{languages}</table>"
        items = "".join(f"<li>{escape(text)}</li>" for text in self.weaknesses)
        return f"{table}<p>Known weaknesses</p><ul>{items}</ul>" if items else table

    def as_widget(self) -> object:
        """The report as an ipywidget, for notebooks that keep widgets."""
        from ipywidgets import HTML

        return HTML(self._repr_html_())


def make_report(backend: ProcessBackend, *, again: bool = False) -> CapabilityReport:
    """Measure (once a process, or again) and describe."""
    order = ("files", "processes", "network", "kernel", "limits")
    lines = sorted(measurements(backend, again=again), key=lambda line: order.index(line.area))
    return CapabilityReport(
        backend=backend.name,
        isolation=backend.isolation_class,
        host=f"{platform.system()} {platform.release()} {platform.machine()}",
        lines=tuple(lines),
        languages={str(language): availability(backend.config, language) for language in RECIPES},
        weaknesses=backend.enforcer.weaknesses if backend.enforcer is not None else _NO_WALLS,
    )
