"""What a path below a root may be: the part that needs no look at the disk."""

from __future__ import annotations

PARTS_MAX = 32
NAME_BYTES_MAX = 240
"""A rotated log has a number behind its name, and a name has 255 bytes."""


class NotConfined(Exception):
    """The path does not lead to a file of ours below the root; ``str()`` is one line."""


def parts_below(root: str, path: str) -> tuple[str, ...]:
    """The names from the root to the file: ``path`` is relative to it, or begins with it.

    Raises ``NotConfined``.
    """
    if path.startswith("/"):
        base = root.rstrip("/") + "/"
        if not path.startswith(base):
            raise NotConfined(f"it is not below {root}")
        path = path.removeprefix(base)
    parts = [part for part in path.split("/") if part]
    if not parts or path.endswith("/"):
        raise NotConfined("it names no file")
    if len(parts) > PARTS_MAX:
        raise NotConfined(f"it has more than {PARTS_MAX} parts")
    for part in parts:
        if part in (".", ".."):
            raise NotConfined(f"it holds {part!r}")
        if not part.isprintable() or len(part.encode("utf-8", "replace")) > NAME_BYTES_MAX:
            raise NotConfined("it holds a name that is too long, or cannot be printed")
    return tuple(parts)
