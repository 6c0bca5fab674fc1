"""Whether a module could be imported where functions are called; imports nothing to find out."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder


def is_there(module: str, folder: str) -> bool:
    """Whether ``package.module`` lies in ``folder``, as the project's own do, or in this Python.

    What only its own package could tell (one that makes its modules up) counts as there.
    """
    places: list[str] | None = [folder, *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            # By its last name alone: a package without a file, within another one, would be asked
            # for its parent, which is not imported.
            spec = PathFinder.find_spec(part, places)
        except (ImportError, OSError, ValueError):
            return True  # Unreadable is not missing: who calls it will say more.
        if spec is None:
            return name in sys.stdlib_module_names
        places = list(spec.submodule_search_locations or ())
    return True
