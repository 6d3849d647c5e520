"""`python -m kvgen` and the `kvgen` command."""

from __future__ import annotations


def main() -> None:
    from kvgen.cli import run

    run()


if __name__ == "__main__":
    main()
