"""Programs that a benchmark compares us with, where the machine has them not.

Fetched by the registries' own clients into the cache of ``scripts/``, never into the checkout; no
root is needed: Debian's packages are unpacked, not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tools.figures import say
from benchmarks.tools.fleets import Broken, run

BUILD_SECONDS = 3600.0


class Missing(Exception):
    """A peer that this machine has not, and that could not be fetched; ``str()`` says why."""


def cache() -> Path:
    """Where fetched peers are kept."""
    kept = os.environ.get("BW_CACHE") or Path.home() / ".cache" / "beads-workers"
    return Path(kept) / "peers"


def debian(program: str, package: str) -> str:
    """A program that is installed, or from Debian's package of it; raises ``Missing``."""
    if found := shutil.which(program):
        return found
    target = cache() / package
    unpacked = target / "usr" / "bin" / program
    if not unpacked.exists():
        say(f"fetching {package} into {target}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        try:
            run(["apt-get", "download", "--quiet", package], target, dict(os.environ))
            (file,) = target.glob("*.deb")
            run(["dpkg-deb", "--extract", str(file), "."], target, dict(os.environ))
        except (Broken, OSError, ValueError) as error:
            raise Missing(f"sudo apt-get install {package} ({error})") from error
    return str(unpacked)


def python_environment(name: str, requirements: Sequence[str]) -> Path:
    """The Python of an environment with these packages, made once; raises ``Missing``."""
    target = cache() / name
    python = target / "bin" / "python"
    complete = target / "complete"
    if not complete.exists():
        say(f"installing {', '.join(requirements)} into {target}")
        shutil.rmtree(target, ignore_errors=True)
        here, quiet = dict(os.environ), ("--quiet", "--disable-pip-version-check")
        try:
            run([sys.executable, "-m", "venv", str(target)], cache().parent, here)
            run([str(python), "-m", "pip", "install", *quiet, *requirements], target, here)
        except (Broken, OSError) as error:
            raise Missing(f"{', '.join(requirements)} could not be installed: {error}") from error
        complete.write_text("\n".join(requirements))
    return python


def crate(name: str, version: str) -> Path:
    """The folder of a crate's programs, built once (minutes); raises ``Missing``."""
    target = cache() / f"{name}-{version}"
    if not (target / "bin" / name).exists():
        if shutil.which("cargo") is None:
            raise Missing("cargo is not installed")
        say(f"building {name} {version} into {target} (minutes; once)")
        wanted = ["cargo", "install", "--quiet", "--locked", "--version", version]
        try:
            subprocess.run(
                [*wanted, "--root", str(target), name],
                check=True,
                capture_output=True,
                timeout=BUILD_SECONDS,
            )
        except (subprocess.SubprocessError, OSError) as error:
            raise Missing(f"{name} could not be built: {error}") from error
    return target / "bin"
