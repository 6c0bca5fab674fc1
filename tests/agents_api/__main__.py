"""``python -m tests.agents_api [--port N] [--scale X] [--script TEXT]``: the stub as a process.

It prints its URL, and ends with its stdin or with a signal.
"""

from __future__ import annotations

import argparse
import sys

from tests.agents_api.server import ModelApi


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description="A stub of the model APIs on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="how long a script's second is")
    parser.add_argument("--script", default="", help="for prompts that have none")
    given = parser.parse_args()
    with ModelApi(port=given.port, scale=given.scale, script=given.script) as api:
        print(api.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
