"""Read a compiled kernel: registers, spills, and the loop that its keys and values run through.

SASS comes from the tools in triton's wheel, AMD's assembly from the compiler itself.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MATRIX = {  # by family of targets: what matrix instructions are called, the widest first
    "sm": ("UTCHMMA", "UTCQMMA", "HGMMA", "HMMA"),
    "gfx": ("v_mfma",),
}


def read_sass(asm: Any) -> dict[str, Any]:
    """Figures of a cubin, from the tools in triton's wheel."""
    import triton  # pyright: ignore[reportMissingTypeStubs]

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        usage, text = (
            subprocess.run(
                [tool, flag, file.name], capture_output=True, text=True, check=True
            ).stdout
            for flag in ("-res-usage", "-sass")
        )
    numbers = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", text)
    lines = [(int(address, 16), line) for address, line in found if not line.startswith("NOP")]
    loop = main_loop(
        lines, "sm", r"\bBRA(?:\.\S+)?\s.*?(0x[0-9a-f]+)", lambda place: int(place, 16)
    )
    # keys and values are copied without waiting where the target can; other loads are then of single numbers
    loads = [line for line in loop if "LDGSTS" in line]
    loads = loads or [line for line in loop if re.search(r"\bLDG\b|\bLDG\.", line)]
    spilled = sum(bool(re.search(r"\b(LDL|STL)\b|\b(LDL|STL)\.", line)) for _, line in lines)
    return {
        "registers": numbers["REG"],
        "spill_bytes": 4 * spilled,
        "stack_bytes": numbers["STACK"] + numbers["LOCAL"],
        "load_bytes": min(map(_sass_bytes, loads), default=0),
        "matrix": _matrix([line for _, line in lines], "sm"),
        "instructions": len(loop),
    }


def _sass_bytes(line: str) -> int:
    """A load without a size is of 4 bytes."""
    sizes = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}
    operation = line.split()[0] if not line.startswith("@") else line.split()[1]
    return next(
        (
            size
            for name, size in sizes.items()
            if operation.endswith(name) or f"{name}." in operation
        ),
        4,
    )


def read_gcn(asm: Any) -> dict[str, Any]:
    """Figures of AMD's assembly text."""
    text = asm["amdgcn"]

    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        return int(found.group(1)) if found else 0

    labels: dict[str, int] = {}
    lines: list[tuple[int, str]] = []
    for line in map(str.strip, text.splitlines()):
        if label := re.match(r"(\.L\w+):", line):
            labels[label.group(1)] = len(lines)
        elif re.match(r"(s|v|ds|buffer|global|flat|scratch)_", line):
            lines.append((len(lines), line))
    loop = main_loop(
        lines, "gfx", r"s_c?branch\S*\s+(\.L\w+)", lambda place: labels.get(place, len(lines))
    )
    loads = [line for line in loop if re.match(r"(buffer|global)_load", line)]
    return {
        "registers": number("vgpr_count"),
        "spill_bytes": 4 * number("vgpr_spill_count"),
        "stack_bytes": number("private_segment_fixed_size"),
        "load_bytes": min(map(_gcn_bytes, loads), default=0),
        "matrix": _matrix([line for _, line in lines], "gfx"),
        "instructions": len(loop),
    }


def _gcn_bytes(line: str) -> int:
    found = re.search(r"_load_dword(x(\d))?", line)
    return 2 if found is None else 4 * int(found.group(2) or 1)


def main_loop(
    lines: list[tuple[int, str]], family: str, jump: str, place: Callable[[str], int]
) -> list[str]:
    """The shortest backward jump around matrix instructions. Wait loops may lie outside of it."""
    shortest: list[str] = []
    for address, line in lines:
        found = re.search(jump, line)
        if found is None or (start := place(found.group(1))) >= address:
            continue
        body = [text for at, text in lines if start <= at <= address]
        if _matrix(body, family) and (not shortest or len(body) < len(shortest)):
            shortest = body
    return shortest


def _matrix(lines: list[str], family: str) -> str:
    """The widest kind of matrix instruction among them, "" without one."""
    for name in MATRIX[family]:
        if any(re.search(rf"\b{name}", line) for line in lines):
            return name
    return ""
