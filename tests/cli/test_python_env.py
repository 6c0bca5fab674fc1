"""Where ``bin/beads-workers`` and the scripts keep their environments."""

from __future__ import annotations

import os
import pwd
import subprocess

from tests.test_tidy import ROOT


def cache(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", 'source scripts/python-env.sh && echo "$bw_cache"'],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_home_they_lie_in_the_users_own_folder_and_not_below_tmp() -> None:
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert cache().stdout == f"{home}/.cache/beads-workers\n"
    assert cache(HOME="/").stdout == "//.cache/beads-workers\n"


def test_without_any_home_somebody_has_to_say_where() -> None:
    refused = cache(HOME="/nonexistent")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "error: there is no home folder /nonexistent",
        "hint: set BW_CACHE to a folder of yours",
    ]
    assert cache(HOME="/nonexistent", BW_CACHE="/here").stdout == "/here\n"
