"""One HTML page of a policy file, which needs nothing else: pictures, the plan with its reasons, a report of `kvgen verify`,
and all that was emitted. No script, no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kvgen.backends import BACKENDS
from kvgen.draw import code, svg
from kvgen.draw.picture import Picture
from kvgen.draw.style import sheet
from kvgen.plan import Decision, PackagePlan, decisions

_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.55 system-ui,'Segoe UI','DejaVu Sans',sans-serif}
main{max-width:1480px;margin:0 auto;padding:28px 20px 80px}
h1{font-size:30px;margin:12px 20px 4px}h2{font-size:21px;margin:44px 20px 8px}h3{font-size:16px;margin:26px 20px 6px}
p,table,details,pre.source{margin-left:20px;margin-right:20px}
p.lead{color:var(--soft)}nav{margin:0 20px}nav a{margin-right:16px;color:var(--window)}
svg{max-width:100%;height:auto;display:block}
table{border-collapse:collapse;width:calc(100% - 40px)}
th,td{text-align:left;vertical-align:top;padding:7px 14px 7px 0;border-bottom:1px solid var(--line)}
th{font-weight:600;white-space:nowrap}td:last-child{color:var(--soft)}
pre,code{font:13px/1.5 ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}
pre{overflow:auto;background:var(--ghost);border-radius:6px;padding:14px 16px;margin:8px 0}
summary{cursor:pointer;padding:4px 0;font:13.5px ui-monospace,'DejaVu Sans Mono',Menlo,monospace}
summary small{color:var(--soft)}
.c{color:var(--soft)}.s{color:var(--keys)}.k{color:var(--window);font-weight:600}
"""


def page(
    package: PackagePlan, found: Sequence[Picture], files: Mapping[str, str], report: str | None
) -> str:
    """`report`: what `kvgen verify` printed, None where nobody asked."""
    stem = package.program.stem
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(stem)}.kv</title>",
            f"<style>{sheet(':root')}{_STYLE}</style></head><body><main>",
            *_opening(package, report),
            *_pictures(package, found),
            *_plan(package),
            *_report(report),
            *_files(files),
            "</main></body></html>",
            "",
        ]
    )


def _opening(package: PackagePlan, report: str | None) -> Iterator[str]:
    stem = package.program.stem
    parts = ["pictures", "plan", *(["verified"] if report else []), "source", "files"]
    links = "".join(f'<a href="#{part}">{part}</a>' for part in parts)
    yield f"<h1>{escape(stem)}.kv</h1>"
    yield f"<nav>{links}</nav>"
    yield f'<h2 id="source">Source, as <code>kvgen fmt</code> prints it</h2><pre class="source">{escape(package.program.formatted)}</pre>'


def _pictures(package: PackagePlan, found: Sequence[Picture]) -> Iterator[str]:
    yield '<h2 id="pictures">What it means</h2>'
    for number, picture in enumerate(found):
        yield svg.one(picture, first=number == 0)
    for number in range(len(package.models)):
        yield svg.model_picture(package.program, number)


def _plan(package: PackagePlan) -> Iterator[str]:
    yield '<h2 id="plan">What was decided, and why</h2>'
    for plan in package.policies:
        yield from _decisions(f"policy {plan.policy.name}", decisions(plan))
    for plan in package.models:
        yield from _decisions(f"model {plan.model.name}", plan.decisions)


def _decisions(title: str, found: Sequence[Decision]) -> Iterator[str]:
    yield f"<h3>{escape(title)}</h3><table>"
    for one in found:
        cells = f"<td>{escape(one.choice)}</td><td>{escape(one.why)}</td>"
        yield f"<tr><th>{escape(one.topic)}</th>{cells}</tr>"
    yield "</table>"


def _report(report: str | None) -> Iterator[str]:
    if report is not None:
        yield f'<h2 id="verified">What <code>kvgen verify</code> found</h2><pre class="source">{escape(report)}</pre>'


def _files(files: Mapping[str, str]) -> Iterator[str]:
    yield '<h2 id="files">What was emitted</h2>'
    yield '<p class="lead">As <code>kvgen compile</code> writes it; the kernels are last.</p>'
    for path in sorted(files, key=_kernels_last):
        lines = files[path].count("\n")
        yield f"<details><summary>{escape(path)} <small>{lines} lines</small></summary>"
        yield f"<pre>{code.marked(path, files[path])}</pre></details>"


def _kernels_last(path: str) -> tuple[bool, str]:
    return any(f"_{backend}." in path for backend in BACKENDS), path
