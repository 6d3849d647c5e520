"""`kvgen draw`: what a policy means, as a picture. Computed by `kvgen.model`; the formats only lay it out."""

from __future__ import annotations

from dataclasses import replace

from kvgen.draw.picture import Picture, pictures
from kvgen.errors import FileProblem
from kvgen.ir import Program

FORMATS = ("svg", "html", "text")
_SIZES = {"svg": (32, 12), "html": (32, 12), "text": (18, 6)}  # positions, reach


def draw(program: Program, style: str, only: str | None = None, report: str | None = None) -> str:
    """The picture of a file, or of its policy `only`, in one of FORMATS. `report`: of `kvgen verify`, for the page."""
    shown = program if only is None else _only(program, only)
    found = pictures(shown, *_SIZES[style])
    match style:
        case "svg":
            from kvgen.draw.svg import svg

            return svg(shown, found)
        case "html":
            return _page(shown, found, report)
        case _:
            from kvgen.draw.text import text

            return text(found, shown.models)


def _page(program: Program, found: tuple[Picture, ...], report: str | None) -> str:
    from kvgen.draw.page import page
    from kvgen.emit import emit
    from kvgen.plan import plan

    package = plan(program)
    return page(package, found, emit(package), report)


def _only(program: Program, name: str) -> Program:
    """One policy, by its name without regard to case."""
    chosen = tuple(one for one in program.policies if one.name.lower() == name.lower())
    if not chosen:
        known = ", ".join(policy.name for policy in program.policies)
        raise FileProblem(f"no policy `{name}` in {program.stem}.kv: it declares {known}")
    return replace(program, policies=chosen, models=())
