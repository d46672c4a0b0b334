"""Cleans inline styles: keeps properties of colour, text and spacing whose values load nothing."""

from __future__ import annotations

import re


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


HTML_PROPERTIES = names(
    "color background-color font-weight font-style font-size font-family font-variant line-height text-align "
    "text-decoration text-transform text-indent white-space vertical-align letter-spacing word-spacing word-break "
    "overflow-wrap direction list-style-type opacity "
    "width height min-width max-width max-height padding padding-top padding-right padding-bottom padding-left "
    "margin margin-top margin-right margin-bottom margin-left border border-top border-right border-bottom border-left "
    "border-color border-style border-width border-radius border-collapse border-spacing box-sizing display overflow "
    "overflow-x overflow-y table-layout caption-side empty-cells"
)
SVG_PROPERTIES = names(
    "fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin stroke-miterlimit "
    "clip-rule clip-path text-anchor dominant-baseline alignment-baseline font color opacity visibility display "
    "font-family font-size font-style font-weight shape-rendering"
)
#: The style sheet that pandas and polars add to every table. It only aligns text, so it is removed without a note.
TABLE_STYLE = re.compile(r"<style(?: scoped)?>\s*\.dataframe [^<@]{0,800}</style>")

_MAX_STYLE = 4096
_MAX_DECLARATIONS = 40
#: Values without backslashes (escapes), @ and !, with at most one function call.
_VALUE = re.compile(r"[A-Za-z0-9#%.,'\" _/+-]+(?:\((?P<inner>[0-9.,% /a-z-]*)\)[A-Za-z0-9#%., ]*)?\Z")
_FUNCTION = re.compile(r"\b(?:rgb|rgba|hsl|hsla)\Z", re.IGNORECASE)
#: ``url(#…)``, a reference to an element of the same drawing.
LOCAL_URL = re.compile(r"url\((['\"]?)#[A-Za-z0-9_.:-]{1,128}\1\)\Z")
#: Families that are kept, in small letters. A browser asks the system for each other name, a millisecond each.
_FAMILY_NAMES = (
    "serif|sans-serif|monospace|cursive|fantasy|system-ui|arial|helvetica|helvetica neue|verdana|tahoma|trebuchet ms|"
    "dejavu sans|dejavu sans mono|dejavu serif|liberation sans|liberation mono|noto sans|times|times new roman|georgia|"
    "courier|courier new|consolas|menlo|monaco|open sans|roboto|inter|segoe ui|ubuntu|lucida grande|lucida console|"
    "bitstream vera sans|computer modern roman|stixgeneral|balto|palatino|impact|comic sans ms"
)
_FAMILIES = frozenset(_FAMILY_NAMES.split("|"))
#: For each other weight, width and angle it looks for a font anew.
_FONTS = {
    "font-weight": re.compile(r"normal|bold|bolder|lighter|[1-9]00", re.IGNORECASE),
    "font-stretch": re.compile(r"[a-z-]+", re.IGNORECASE),
    "font-style": re.compile(r"normal|italic|oblique", re.IGNORECASE),
}
_FONT = re.compile(
    r"((?:(?:normal|italic|oblique|small-caps|bold|bolder|lighter|[1-9]00)\s+)*[0-9.]+[a-z%]*(?:\s*/\s*[0-9.]+[a-z%]*)?)"
    r"\s+(.+)",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(r"(?<![A-Za-z0-9_#-])-\s*\.?\d")


def clean_font(name: str, value: str) -> str | None:
    """Return a value of a property of fonts that is no work for a browser; None when nothing is left."""
    if name in _FONTS:
        return value if _FONTS[name].fullmatch(value.strip()) else None
    if name not in ("font", "font-family"):
        return value
    short = _FONT.fullmatch(value.strip()[:400]) if name == "font" else None
    if name == "font" and short is None:
        return None
    wanted = [family.strip(" '\"") for family in (short[2] if short else value[:400]).split(",")]
    kept = ",".join(f"'{family}'" if " " in family else family for family in wanted if family.lower() in _FAMILIES)
    return (f"{short[1]} {kept}" if short else kept) if kept else None


def clean_style(style: str, properties: frozenset[str]) -> str | None:
    """Return the allowed declarations of a style; None if none is left."""
    if len(style) > _MAX_STYLE or style.count(";") > _MAX_DECLARATIONS:
        return None
    kept = []
    for declaration in style.split(";"):
        name, colon, value = declaration.partition(":")
        name, value = name.strip().lower(), value.strip()
        # Space in percent inside of grids and flexible boxes takes a browser several times as long at each level.
        relative = "%" in value and name.startswith(("padding", "margin"))
        # So do grids with any size in percent.
        relative = relative or (name == "display" and "grid" in value.lower())
        if not colon or name not in properties or relative:
            continue
        match = _VALUE.match(value)
        tame = match is not None and (match["inner"] is None or _FUNCTION.search(value[: value.index("(")]))
        if properties is HTML_PROPERTIES:
            tame = tame and not _NEGATIVE.search(value)
        elif LOCAL_URL.match(value):
            tame = True
        if tame and (clean := clean_font(name, value)) is not None:
            kept.append(f"{name}:{clean}")
    return ";".join(kept) or None
