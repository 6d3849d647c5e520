"""Screenshots by headless Chromium, where it is installed, and their pixels."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

BROWSER = shutil.which("chromium")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
).split()


def screenshot(page: Path, png: Path, dark: bool, width: int = 600, height: int = 320) -> Path:
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    profile = png.with_suffix(".profile")
    command = [BROWSER, *_FLAGS, scheme, f"--user-data-dir={profile}", f"--window-size={width},{height}",
               f"--screenshot={png}", page.as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return png


def pixels(png: Path) -> list[list[tuple[int, int, int]]]:
    """Rows of (red, green, blue) of an 8-bit colour PNG: https://www.w3.org/TR/png-3/#9Filters."""
    data, at, packed = png.read_bytes(), 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", data[at + 8 : at + 18])
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    assert depth == 8 and colour in (2, 6)
    step = 3 if colour == 2 else 4
    raw, before, rows = zlib.decompress(packed), bytearray(width * step), []
    for start in range(0, len(raw), 1 + width * step):
        before = _unfiltered(
            raw[start], bytearray(raw[start + 1 : start + 1 + width * step]), before, step
        )
        rows.append([tuple(before[i : i + 3]) for i in range(0, len(before), step)])
    return rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        match kind:
            case 1:
                row[i] = row[i] + left & 255
            case 2:
                row[i] = row[i] + above[i] & 255
            case 3:
                row[i] = row[i] + (left + above[i]) // 2 & 255
            case 4:
                guess = left + above[i] - corner
                nearest = min((left, above[i], corner), key=lambda x: abs(guess - x))
                row[i] = row[i] + nearest & 255
    return row
