"""Damage as disks and transfers do it."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, place: int = 0) -> None:
    """One bit of the file changes; name, size and links stay."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
