"""Draws charts as SVG text. Pure functions, so that charts can be tested as text.

Charts have their own background, follow the reader's colour scheme, and use no external font, script or file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 72, 48
_BAR, _GAP, _CHARACTER = 20, 8, 6.6
#: Colours that differ in lightness as well as in hue.
_LIGHT = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce", "#57606a", "#be185d")
_DARK = ("#6cb6ff", "#ff9e64", "#6fdd8b", "#d2a8ff", "#adbac7", "#ff8fc7")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4")


@dataclass(frozen=True)
class Series:
    """A line of a chart: y values by x."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Axis:
    """An axis: maps values to positions, linearly or logarithmically."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value; values outside of the axis are at its edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return a few round values for ticks."""
        if not self.log:
            step = _step((self.high - self.low) / 5)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [step * number for number in range(first, last + 1)]
        tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1.0,) if math.log10(self.high / self.low) > 4 else (1.0, 2.0, 5.0)
        near = 1 + 1e-9
        found = [factor * 10.0**ten for ten in tens for factor in factors]
        return [value for value in found if self.low / near <= value <= self.high * near]


def axis(values: Sequence[float], begin: float, end: float, *, log: bool) -> Axis:
    """Return an axis for these values; a linear one starts at 0, and none has length 0."""
    if log:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = min(positive), max(positive)
        return Axis(low, high if high > low else low * 10, begin, end, log=True)
    high = max([0.0, *values]) or 1.0
    step = _step(high / 5)
    return Axis(0.0, step * math.ceil(high / step - 1e-9), begin, end)


def line_chart(
    title: str, series: Sequence[Series], *, x: str, y: str, log_x: bool = False, log_y: bool = False
) -> str:
    """Draw lines over a common x; if there are few x values, each is a tick."""
    points = [point for line in series for point in line.points]
    across = axis([px for px, _ in points], _LEFT, WIDTH - _RIGHT, log=log_x)
    up = axis([py for _, py in points], HEIGHT - _BOTTOM, _TOP, log=log_y)
    measured = sorted({px for px, _ in points})
    parts = [_text(_LEFT, 26, title, "title"), *_legend([line.name for line in series])]
    for value in up.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {up.place(value):.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 8, up.place(value) + 4, _number(value), "tick end"))
    marks = measured if len(measured) <= 10 else across.ticks()
    parts += [_text(across.place(value), HEIGHT - _BOTTOM + 18, _number(value), "tick middle") for value in marks]
    parts.append(f'<path class="axis" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>')
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 10, x, "tick middle"))
    parts.append(_text(16, _TOP - 8, y, "tick"))
    for index, line in enumerate(series):
        places = [(across.place(px), up.place(py)) for px, py in sorted(line.points)]
        joined = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        kind = index % len(_LIGHT)
        parts.append(f'<polyline class="line s{kind}" stroke-dasharray="{_DASHES[kind]}" points="{joined}"/>')
        parts += [f'<circle class="dot f{kind}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in places]
    return _document(title, HEIGHT, parts)


def bar_chart(title: str, bars: Mapping[str, float], *, unit: str, base: float | None = None, log: bool = False) -> str:
    """Draw horizontal bars with names and values, and a line at ``base`` for comparison."""
    left = 24 + _CHARACTER * max(map(len, bars), default=0)
    values = [*bars.values(), *([base] if base is not None else [])]
    across = axis(values, left, WIDTH - 72, log=log)
    if log:
        # The smallest bar must be visible too.
        across = Axis(across.low / 2, across.high, left, WIDTH - 72, log=True)
    height = _TOP + len(bars) * (_BAR + _GAP) + _BOTTOM - 16
    parts = [_text(16, 26, title, "title"), _text(16, 46, f"{unit}, logarithmic scale" if log else unit, "tick")]
    for index, (name, value) in enumerate(bars.items()):
        top = _TOP + index * (_BAR + _GAP)
        end = across.place(value)
        parts.append(_text(left - 8, top + 15, name, "tick end"))
        wide = max(1.0, end - left)
        parts.append(f'<rect class="f{0 if name.startswith("sandbox") else 4}" x="{left:.1f}" y="{top}" '
                     f'width="{wide:.1f}" height="{_BAR}" rx="2"/>')  # fmt: skip
        parts.append(_text(left + wide + 6, top + 15, _number(value), "tick"))
    if base is not None:
        place = across.place(base)
        parts.append(f'<path class="base" d="M{place:.1f} {_TOP - 8}V{height - _BOTTOM + 16}"/>')
    return _document(title, height, parts)


def _document(title: str, height: float, parts: Sequence[str]) -> str:
    light = "".join(f".f{n}{{fill:{c}}}.s{n}{{stroke:{c}}}" for n, c in enumerate(_LIGHT))
    dark = "".join(f".f{n}{{fill:{c}}}.s{n}{{stroke:{c}}}" for n, c in enumerate(_DARK))
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}"
        ".end{text-anchor:end}.middle{text-anchor:middle}.back{fill:#fff}.grid{stroke:#d1d9e0;stroke-width:.5}"
        ".axis,.base{stroke:#59636e}.base{stroke-dasharray:4 3}.line{fill:none;stroke-width:2}" + light +
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}.grid{stroke:#3d444d}"
        ".axis,.base{stroke:#9198a1}" + dark + "}"
    )  # fmt: skip
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height:g}" rx="6"/>',
        *parts,
        "</svg>\n",
    ))  # fmt: skip


def _legend(names: Sequence[str]) -> list[str]:
    parts, place = [], float(_LEFT)
    for index, name in enumerate(names):
        kind = index % len(_LIGHT)
        dash = _DASHES[kind]
        parts.append(f'<path class="line s{kind}" stroke-dasharray="{dash}" d="M{place:.1f} 42h18"/>')
        parts.append(_text(place + 24, 46, name, "tick"))
        place += 48 + _CHARACTER * len(name)
    return parts


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _step(rough: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    ten = 10.0 ** math.floor(math.log10(rough))
    return next(factor * ten for factor in (1, 2, 5, 10) if factor * ten >= rough * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
