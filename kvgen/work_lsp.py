"""`kvgen lsp`."""

from __future__ import annotations

from kvgen.errors import FileProblem
from kvgen.work import CLEAN, PROBLEMS


def lsp() -> int:
    """The exit status. The protocol wants 1 of a server that ends without having been asked to shut down."""
    try:
        from kvgen.lsp.server import serve
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise FileProblem(
            f"kvgen lsp needs {missing.name.split('.')[0]}: pip install 'kvgen[lsp]'"
        ) from missing
    return CLEAN if serve() else PROBLEMS
