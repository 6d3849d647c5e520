"""The command line. A command takes its options, asks `work`, and has the answer printed.

The rooms are imported where they are used, so that `kvgen --help` starts none of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from kvgen import __version__, console
from kvgen.options import (
    PICTURES,
    SHELLS,
    STAGES,
    TOPICS,
    Commands,
    file_type,
    in_file,
    in_folder,
    in_name,
    in_paths,
    in_style,
    some_time,
    words,
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvgen", message="%(prog)s %(version)s")
def main() -> None:
    """Compile attention-cache policies, .kv files, to readable PyTorch packages.

    A PATH is a policy file, a folder (all .kv files in it), or - for standard input. Exit status: 0
    clean, 1 problems or differences, 2 usage or file errors, 101 a fault in kvgen itself.
    """


@main.command("compile")
@in_paths
@in_folder
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@click.option(
    "--backend", "backends", metavar="NAMES", help="Of `kvgen list backends`. Default: all."
)
@click.option("--emit", "stage", type=click.Choice(STAGES), help="Print a stage; write nothing.")
@click.option("--tests", is_flag=True, help="Add a pytest file of its own to each package.")
@click.option("--prune", is_flag=True, help="Remove what kvgen wrote for policies that are gone.")
@click.option("--watch", is_flag=True, help="Go on, compiling what changes, until Ctrl-C.")
@in_style
@in_name
def compile_command(
    paths: tuple[str, ...], name: str | None, style: str, watch: bool, **asked: Any
) -> NoReturn:
    """Write a package for every policy file."""
    from kvgen import inputs, work

    options = work.Compile(**asked)
    if watch:
        from kvgen import work_watch

        console.follow(work_watch.watch(paths, name, options), style)
    console.finish(work.compile(inputs.collect(paths, name), options), style)


@main.command()
@in_paths
@click.option("--fix", is_flag=True, help="Fix what has one way out; standard input is printed.")
@in_style
@in_name
def check(paths: tuple[str, ...], fix: bool, name: str | None, style: str) -> NoReturn:
    """Report the problems of policy files."""
    from kvgen import inputs, work, work_fix

    found = inputs.collect(paths, name)
    console.finish(work_fix.fix(found, style) if fix else work.check(found, style), style)


@main.command()
@in_paths
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@in_style
@in_name
def fmt(paths: tuple[str, ...], check: bool, diff: bool, name: str | None, style: str) -> NoReturn:
    """Format policy files; standard input is printed."""
    from kvgen import inputs, work

    console.finish(work.fmt(inputs.collect(paths, name), check, diff), style)


@main.command()
@click.argument("what", metavar="CODE|CLAUSE", shell_complete=words)
def explain(what: str) -> NoReturn:
    """Explain a code (KV203) or a clause (window)."""
    from kvgen import listing, work

    console.finish(work.Outcome(out=listing.page(what)))


@main.command()
@click.argument("path", metavar="POLICY")
@click.option("--policy", "only", metavar="NAME", help="Of a file with several, this one.")
@click.option("--format", "style", type=click.Choice(PICTURES), help="Default: by -o, else text.")
@click.option(
    "--report", type=file_type, metavar="FILE", help="What `kvgen verify` said, for html."
)
@in_file
@in_name
def draw(path: str, name: str | None, **asked: Any) -> NoReturn:
    """Draw what queries see, what the cache holds, what a token costs.

    POLICY is a policy file, or a folder to be drawn into the folder -o.
    """
    from kvgen import inputs, work_draw

    console.finish(work_draw.draw(inputs.collect([path], name), work_draw.Draw(**asked)))


@main.command()
@in_paths
@click.option("--target", "targets", metavar="NAMES", help="Of sm_80,sm_90,... Default: all.")
@click.option("--format", "style", type=click.Choice(("text", "json")), default="text")
@in_name
def audit(paths: tuple[str, ...], name: str | None, targets: str | None, style: str) -> NoReturn:
    """Compile all Triton kernels, without a GPU, and hold them to a budget."""
    from kvgen import inputs, work_audit

    asked = work_audit.Audit(targets, style)
    console.finish(work_audit.audit(inputs.collect(paths, name), asked))


@main.command()
@in_paths
@click.option("--backend", "backends", metavar="NAMES", help="Default: all that run here.")
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    callback=some_time,
    help="For each policy and model.",
)
@click.option("--seed", default=0, show_default=True, help="Of the random sequences.")
@click.option("--format", "style", type=click.Choice(("text", "json")), default="text")
@in_name
def verify(paths: tuple[str, ...], name: str | None, **asked: Any) -> NoReturn:
    """Prove what can be proved of policies; test the rest."""
    from kvgen import inputs, work_verify

    console.finish(work_verify.verify(inputs.collect(paths, name), work_verify.Verify(**asked)))


@main.command()
@click.argument("old")
@click.argument("new")
@click.option("--format", "style", type=click.Choice(("text", "json")), default="text")
def diff(old: str, new: str, style: str) -> NoReturn:
    """Say what a change of policies changes.

    OLD and NEW are policy files. Exit status 0: they mean the same; 1: they do not.
    """
    from kvgen import inputs, work_diff

    console.finish(work_diff.diff(inputs.collect([old], None), inputs.collect([new], None), style))


@main.command()
@in_paths
@click.option("--target", "targets", metavar="NAMES", help="Triton kernels for sm_90,gfx942,...")
@click.option("--columns", metavar="NUMBERS", help="With --target: widths of verify windows.")
@click.option(
    "--out", "output", type=file_type, metavar="DIR", help="Default: where packages look."
)
@in_name
def build(paths: tuple[str, ...], name: str | None, output: Path | None, **asked: Any) -> NoReturn:
    """Compile kernels ahead of their first use.

    The C++ kernels, for this machine: with --out, set KVGEN_CACHE to that folder where they are to
    be found. With --target the Triton kernels, without a GPU, into the packages that `kvgen
    compile` wrote in --out (default: generated): the folder _kernels in a package goes where it goes.
    """
    from kvgen import inputs, work_build

    found = inputs.collect(paths, name)
    console.finish(work_build.chosen(found, work_build.Build(output), **asked))


@main.command()
@in_paths
@click.option("--device", default="cuda", show_default=True, help="The GPU, as torch names it.")
@click.option("--policy", "only", metavar="NAME", help="Default: every policy of the files.")
@click.option("--batch", "rows", type=click.IntRange(1), default=1, show_default=True)
def tune(paths: tuple[str, ...], **asked: Any) -> NoReturn:
    """Measure tile sizes on a GPU and keep the best.

    Beside a policy file x.kv it writes x.tune.json, which belongs in version control: `kvgen
    compile` takes what was measured instead of what it would plan, and `--emit plan` says so.
    """
    from kvgen import inputs, work_tune

    console.finish(work_tune.tune(inputs.collect(paths, None), work_tune.Tune(**asked)))


@main.command("list")
@click.argument("topic", type=click.Choice(TOPICS))
def list_command(topic: str) -> NoReturn:
    """List what there is of a kind."""
    from kvgen import listing, work

    console.finish(work.Outcome(out=listing.table(topic)))


@main.command()
@in_folder
def doctor(output: Path) -> NoReturn:
    """Look over this machine and the output folder."""
    from kvgen import work

    console.finish(work.doctor(output))


@main.command()
@click.argument("name", required=False)
@click.option("--from", "config", type=file_type, metavar="CONFIG", help="A model's config.json.")
@in_file
def init(name: str | None, config: Path | None, output: Path | None) -> NoReturn:
    """Write a first policy, or those of a config.json."""
    from kvgen import work

    console.finish(work.init(name, config, output))


@main.command()
@click.option("--stdio", is_flag=True, help="What it does anyway; some editors pass it.")
def lsp(stdio: bool) -> NoReturn:
    """Serve an editor: problems, completion, fixes."""
    from kvgen import work_lsp

    sys.exit(work_lsp.lsp())  # not by `finish`: the streams are the editor's, and closed


@main.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a shell's completion of kvgen's words."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "kvgen", "_KVGEN_COMPLETE").source())


def run() -> None:
    """The `kvgen` command. The one place that catches everything: what gets here is our fault."""
    console.use_utf8()
    try:
        main(prog_name="kvgen")
    except Exception as fault:  # noqa: BLE001
        console.apologise(fault)
        sys.exit(console.FAULT)
