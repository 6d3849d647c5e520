"""What the commands have in common: options, their words, and how their problems end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kvgen import console
from kvgen.errors import FileProblem

FORMATS = ("full", "concise", "json", "github")
STAGES = ("syntax", "ir", "plan", "code")
TOPICS = ("clauses", "kernels", "backends", "codes")
PICTURES = ("svg", "html", "text")
SHELLS = ("bash", "zsh", "fish")


class Commands(click.Group):
    """Commands whose file problems end in one line and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FileProblem as problem:
            console.say(f"kvgen: {problem}")
            ctx.exit(2)


def words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What `kvgen explain` may be asked, for the shell."""
    from kvgen import listing

    return [
        word for word in listing.explained() if word.casefold().startswith(incomplete.casefold())
    ]


in_paths = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
in_name = click.option("--name", metavar="STEM", help="What to call standard input, PATH `-`.")
in_style = click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    default="full",
    show_default=True,
    help="How to print problems; json and github go to stdout.",
)
file_type = click.Path(path_type=Path)
in_folder = click.option(
    "-o",
    "--output",
    type=file_type,
    default="generated",
    show_default=True,
    help="The output folder.",
)
in_file = click.option(
    "-o", "--output", type=file_type, metavar="FILE", help="Default: standard output."
)


def some_time(_: click.Context, __: click.Parameter, seconds: float) -> float:
    """Seconds that are some."""
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{seconds:g} is no time to test in; give a number above 0.")
    return seconds
