"""``--verify`` of a ``chaos`` that lands: ``python -I -S gate.py FOLDER``, in a worktree.

Runs alone, without the package. It takes some time, and refuses a tree with a broken file. It logs
the trees it accepts, computed from the files that are really there, and not from what git says is
checked out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 0.2


def main(folder: str) -> int:
    """Check the worktree; return the exit status."""
    time.sleep(SECONDS)
    if any(Path().glob("broken-*")):
        return 1
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        index = os.environ | {"GIT_INDEX_FILE": f"{scratch}/index"}
        # Ignored files that are committed nevertheless are only known from HEAD.
        subprocess.run(["git", "read-tree", "HEAD"], env=index, check=True)
        subprocess.run(["git", "add", "--all"], env=index, check=True)
        made = subprocess.run(["git", "write-tree"], env=index, check=True, stdout=subprocess.PIPE)
    line = {"tree": made.stdout.decode().strip(), "at": round(time.time(), 3)}
    log = os.open(f"{folder}/green.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, json.dumps(line).encode("ascii") + b"\n")
    os.close(log)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
