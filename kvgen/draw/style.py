"""Colours, hatchings and type of the pictures: Okabe and Ito's palette, which colour-blind eyes tell apart, and a hatching for
each meaning, so that a grey print loses nothing. Dark where the reader's screen is."""

from __future__ import annotations

from kvgen.draw.kinds import Kind

# name: (light, dark)
_COLOURS = {
    "paper": ("#ffffff", "#12161c"),
    "ink": ("#18212b", "#e8edf2"),
    "soft": ("#5c6a78", "#9aa7b4"),
    "line": ("#d5dbe2", "#37424e"),
    "ghost": ("#f1f3f6", "#1c232b"),
    "grey": ("#a3adb8", "#5b6875"),
    "sink": ("#e69f00", "#e69f00"),
    "window": ("#0072b2", "#2b8fca"),
    "chunk": ("#d55e00", "#de7426"),
    "full": ("#56b4e9", "#56b4e9"),
    "keys": ("#009e73", "#12ab80"),
    "values": ("#cc79a7", "#cc79a7"),
}

# kind: (background, its opacity, lines, their opacity, width, path in an 8 by 8 tile)
_SLASH = "M-2 2L2-2M0 8L8 0M6 10L10 6"
_BACKSLASH = "M-2 6L2 10M0 0L8 8M6-2L10 2"
_HATCHES = {
    "sink": ("sink", 1, "ink", 0.22, 1, "M0 2H8M0 6H8"),
    "chunk": ("chunk", 1, "paper", 0.5, 1.4, "M1.3 2H2.7M5.3 6H6.7"),
    "past-window": ("ghost", 1, "grey", 0.75, 1, _SLASH),
    "past-chunk": ("ghost", 1, "chunk", 0.5, 1, _BACKSLASH),
    "spare": ("ghost", 1, "window", 0.55, 1.3, _BACKSLASH),
    "padding": ("ghost", 1, "grey", 0.9, 1, _SLASH + _BACKSLASH),
    "keys": ("keys", 1, "paper", 0.4, 1, "M2 0V8M6 0V8"),
    "values": ("values", 1, "paper", 0.5, 1, _SLASH),
}
_PLAIN = {Kind.EMPTY: "ghost"}
_TEXT_ON = {Kind.SINK: "dark", Kind.FULL: "dark", Kind.WINDOW: "light", Kind.CHUNK: "light"}


def fill(name: str) -> str:
    """What a shape of that meaning is filled with."""
    return f"url(#{name})" if name in _HATCHES else f"var(--{name})"


def fill_of(kind: Kind) -> str:
    return fill(_PLAIN.get(kind, kind.value))


def tint_of(kind: Kind) -> str:
    """The colour alone, to be laid on thinly; kinds that are all hatching have none."""
    return f"var(--{kind.value})" if kind in _TEXT_ON else fill_of(kind)


def text_on(kind: Kind) -> str:
    """The class of words that stand on it."""
    return _TEXT_ON.get(kind, "halo")


def sheet(scope: str) -> str:
    """The style sheet, light first. `scope`: the selector that the colours hang on."""
    light = "".join(f"--{name}:{light};" for name, (light, _) in _COLOURS.items())
    dark = "".join(f"--{name}:{dark};" for name, (_, dark) in _COLOURS.items())
    return (
        f"{scope}{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{{scope}{{{dark}}}}}"
    )


TYPE = (
    "text{font-family:system-ui,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;fill:var(--ink)}"
    ".mono{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".soft{fill:var(--soft)}.dark{fill:#12161c}.light{fill:#fff}.n{text-anchor:middle}.end{text-anchor:end}"
    ".halo{paint-order:stroke;stroke:var(--ghost);stroke-width:3px}"
)


def hatches() -> list[str]:
    """The definitions that `fill` refers to."""
    return [
        f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="var(--{back})"{_opacity("fill", thick)}/>'
        f'<path d="{path}" stroke="var(--{line})"{_opacity("stroke", thin)} stroke-width="{width:g}"/>'
        "</pattern>"
        for name, (back, thick, line, thin, width, path) in _HATCHES.items()
    ]


def _opacity(what: str, share: float) -> str:
    return "" if share == 1 else f' {what}-opacity="{share:g}"'
