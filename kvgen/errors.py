"""What goes wrong outside a policy's text: a path, a file, a folder, an option. The command line exits with 2."""

from __future__ import annotations


class FileProblem(Exception):
    """The message says what, why and what to do."""

    @classmethod
    def of(cls, error: OSError, remedy: str, place: object = None) -> FileProblem:
        """What the system said of a place, by default of the one that it names itself, and what to do."""
        place = error.filename if place is None else place
        return cls(f"{place}: {error.strerror or error}; {remedy}")
