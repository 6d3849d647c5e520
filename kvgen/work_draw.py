"""What `kvgen draw` does, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvgen import textfile
from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.work import CLEAN, Outcome, check

_ENDINGS = {"svg": ".svg", "html": ".html", "text": ".txt"}
_STYLES = {ending: style for style, ending in _ENDINGS.items()}


@dataclass(frozen=True, slots=True)
class Draw:
    """The options of `kvgen draw`."""

    only: str | None
    style: str | None
    report: Path | None
    output: Path | None

    @property
    def format(self) -> str:
        """As asked, else as the output's name says."""
        if self.style is not None:
            return self.style
        if self.output is None:
            return "text"
        return _STYLES.get(self.output.suffix.lower(), "svg")

    def require_sense(self, whole: bool) -> None:
        """`whole`: a folder is drawn, into a folder."""
        if self.report is not None and self.format != "html":
            raise FileProblem("--report is shown in the page: add --format html, or leave it out")
        if whole or self.output is None or self.style is not None:
            return
        if self.output.suffix.lower() not in _STYLES:
            raise FileProblem(
                f"{self.output} ends in none of {', '.join(_STYLES)}: name it so, or say with --format what to draw"
            )


def draw(inputs: Inputs, asked: Draw) -> Outcome:
    """One file to standard output or a file; a folder of them into a folder."""
    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    asked.require_sense(inputs.whole)
    drawn = _drawn(inputs, asked)
    if asked.output is None and len(drawn) > 1:
        raise FileProblem(f"{len(drawn)} policy files: say with -o into which folder to draw them")
    if asked.output is None:
        return Outcome(diagnostics=judged.diagnostics, out=next(iter(drawn.values())))
    lines = tuple(_write(drawn, inputs, asked, asked.output))
    return Outcome(diagnostics=judged.diagnostics, lines=lines)


def _drawn(inputs: Inputs, asked: Draw) -> dict[str, str]:
    """{stem: picture}."""
    from kvgen import draw as drawing
    from kvgen.pipeline import check_bytes

    report = None if asked.report is None else _read(asked.report)
    found: dict[str, str] = {}
    for file in inputs.files:
        program = check_bytes(file.data, file.shown).program
        assert program is not None
        found[file.stem] = drawing.draw(program, asked.format, asked.only, report)
    return found


def _write(drawn: dict[str, str], inputs: Inputs, asked: Draw, output: Path) -> Iterator[str]:
    for stem, text in drawn.items():
        target = output / f"{stem}{_ENDINGS[asked.format]}" if inputs.whole else output
        textfile.write(target, text)
        yield f"{target}: written"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise FileProblem.of(error, "give --report what `kvgen verify` printed") from error
