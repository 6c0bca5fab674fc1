"""The package as strangers get it: built from a copy of the checkout, installed on its own.

    python -m tests.support.package FOLDER [--source-url URL]

Built again, also from another clone or from the sdist, both files are the same byte for byte: they
bear the time of the commit (or ``SOURCE_DATE_EPOCH``), and nothing of the machine.

``URL``: where the files of this version can be read, without a slash at its end. Links of the
README lead there, because the page of a package has no files beside it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SOURCE = (
    *("__pycache__", ".*_cache", ".git", ".hypothesis", "*.egg-info", "build", "dist"),
    *("PKG-INFO", "setup.cfg"),  # An sdist adds these.
)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))")
"""The target of a link to another file."""
IMAGE = re.compile(r"(!\[[^\]]*\]\()(?![a-z]+:)([^)\s]+)(?=\))")


@dataclass(frozen=True, slots=True)
class Package:
    """What is uploaded."""

    wheel: Path
    sdist: Path


def build(folder: Path, source_url: str = "") -> Package:
    """Build both in ``folder``: the wheel from what the sdist holds, so that it is enough."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    if source_url:
        _tell(copy, source_url)
    at = built_at()
    sdist = folder / _built("sdist", copy, folder, at)
    shutil.rmtree(copy)
    _level(sdist, at)
    wheel = folder / _built("wheel", unpack(sdist, folder / "unpacked"), folder, at)
    shutil.rmtree(folder / "unpacked")
    return Package(wheel, sdist)


def built_at() -> int:
    """When all that is packed was written: in a checkout the time of its commit."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    if (ROOT / ".git").exists():
        words = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
        return int(subprocess.run(words, capture_output=True, check=True).stdout)
    return int((ROOT / "pyproject.toml").stat().st_mtime)


def _level(sdist: Path, at: int) -> None:
    """Write it anew, the same wherever it was made: times, owners, modes and order."""
    fresh = sdist.with_name(f"{sdist.name}.new")
    with (
        tarfile.open(sdist) as archive,
        fresh.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=at) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for each in sorted(archive, key=lambda member: member.name):
            each.mtime, each.mode = at, 0o755 if each.isdir() or each.mode & 0o100 else 0o644
            each.uid = each.gid = 0
            each.uname = each.gname = ""
            each.pax_headers = {}
            written.addfile(each, archive.extractfile(each) if each.isfile() else None)
    fresh.replace(sdist)


def unpack(sdist: Path, folder: Path) -> Path:
    """The checkout that an sdist holds, in a fresh ``folder``."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter  # Python 3.11.2 has none.
        archive.extractall(folder)
    [checkout] = folder.iterdir()
    return checkout


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel; its programs' folder. What the wheel requires is taken
    from the environment of the tests, so that no network is needed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    asked = ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([*pip, *asked], check=True)
    # As a line of a file it is a folder to import from, whose own such files are not read: the
    # checkout, which the tests import, stays unknown here.
    [site] = folder.glob("lib/python*/site-packages")
    (site / "required.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def _tell(checkout: Path, source_url: str) -> None:
    readme, settings = checkout / "README.md", checkout / "pyproject.toml"
    # The address of a file shows a page around it; an image is to be the file itself.
    told = IMAGE.sub(rf"\1{source_url}/\2?raw=true", readme.read_text())
    readme.write_text(LINK.sub(rf"{source_url}/\1", told))
    urls = f'\n[project.urls]\nSource = "{source_url}"\nChanges = "{source_url}/CHANGELOG.md"\n'
    settings.write_text(settings.read_text() + urls)


def _built(kind: str, source: Path, folder: Path, at: int) -> str:
    """The file's name, which the build backend prints last."""
    script = f"from setuptools import build_meta as b; print(b.build_{kind}({str(folder)!r}))"
    words = [sys.executable, "-W", "error::DeprecationWarning", "-c", script]
    done = subprocess.run(
        words,
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(at)},
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def main() -> None:
    """The program: prints the two files."""
    parser = argparse.ArgumentParser(description="Build the package.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source-url", default="")
    said = parser.parse_args()
    said.folder.mkdir(parents=True, exist_ok=True)
    made = build(said.folder.resolve(), said.source_url)
    print(made.sdist, made.wheel, sep="\n")


if __name__ == "__main__":
    main()
