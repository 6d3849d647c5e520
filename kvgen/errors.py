"""What goes wrong outside a policy's text: a path, a file, a folder, an option. The command line exits with 2."""

from __future__ import annotations


class FileProblem(Exception):
    """The message says what, why and what to do."""

    @classmethod
    def of(cls, error: OSError) -> FileProblem:
        where = f"{error.filename}: " if error.filename else ""
        return cls(f"{where}{error.strerror or error}")
