"""The signer of commits that land: asked before a start, and never for longer than it may take."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from beads_workers.checks.rules import Grade
from beads_workers.checks.signing import signer
from beads_workers.worktrees.git import GitError
from tests.support.killed_git import kill_git
from tests.support.repository import git, make_repository

SIGNATURE = """#!/bin/sh
cat >/dev/null
echo "[GNUPG:] SIG_CREATED D" >&2
echo "-----BEGIN PGP SIGNATURE-----
-----END PGP SIGNATURE-----"
"""


@pytest.fixture
def common(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r") / ".git"


def signed_by(common: Path, tmp_path: Path, script: str) -> None:
    program = tmp_path / "signer"
    program.write_text(script)
    program.chmod(0o755)
    git(common, "config", "commit.gpgSign", "yes")
    git(common, "config", "gpg.program", str(program))


def test_who_signs_nothing_is_not_asked(common: Path) -> None:
    assert signer(str(common), 20.0) is None


def test_a_killed_git_does_not_say_that_nothing_is_signed(
    common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(common, "config", "commit.gpgSign", "true")
    kill_git(monkeypatch, tmp_path, "config")
    with pytest.raises(GitError):
        signer(str(common), 20.0)


def test_a_signer_that_signs_is_fine_and_nothing_is_left_in_the_repository(
    common: Path, tmp_path: Path
) -> None:
    signed_by(common, tmp_path, SIGNATURE)
    before = git(common, "count-objects")
    found = signer(str(common), 20.0)
    assert found is not None and found.status is Grade.OK
    assert git(common, "count-objects") == before


def test_a_signer_without_a_terminal_is_named_with_what_unlocks_it(
    common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in signs if it may ask somebody, as pinentry would."""
    monkeypatch.setenv("GPG_TTY", "/dev/pts/0")
    monkeypatch.setenv("DISPLAY", ":0")
    asks = '[ -n "$GPG_TTY$DISPLAY$WAYLAND_DISPLAY" ] || { echo no pinentry >&2; exit 2; }\n'
    signed_by(common, tmp_path, SIGNATURE.replace("cat >", asks + "cat >"))
    git(common, "config", "user.signingKey", "me here")
    found = signer(str(common), 20.0)
    assert found is not None and found.status is Grade.FAIL
    assert "nothing lands: commit.gpgSign" in found.text and "gpg failed to sign" in found.text
    assert (
        found.remedy == f"echo | {tmp_path}/signer --local-user 'me here' --sign --armor >/dev/null"
    )
    assert "--no-land" in found.hint


def test_a_signer_that_waits_for_a_person_is_ended(common: Path, tmp_path: Path) -> None:
    signed_by(common, tmp_path, "#!/bin/sh\nsleep 300\n")
    began = time.monotonic()
    found = signer(str(common), 0.5)
    assert found is not None and "no answer in 0.5 seconds" in found.text
    assert time.monotonic() - began < 60


def test_a_key_of_ssh_that_wants_a_passphrase_is_named(common: Path, tmp_path: Path) -> None:
    git(common, "config", "commit.gpgSign", "true")
    git(common, "config", "gpg.format", "ssh")
    git(common, "config", "user.signingKey", str(tmp_path / "no-key"))
    found = signer(str(common), 20.0)
    assert found is not None and found.status is Grade.FAIL
    assert found.remedy == f"ssh-add {tmp_path}/no-key" and "ssh agent" in found.hint


@pytest.mark.parametrize("said", ["~/no key.pub", "~/no key"])
def test_the_command_that_adds_a_key_names_the_private_one_by_its_path(
    common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    git(common, "config", "commit.gpgSign", "true")
    git(common, "config", "gpg.format", "ssh")
    git(common, "config", "user.signingKey", said)
    found = signer(str(common), 20.0)
    assert found is not None and found.remedy == f"ssh-add '{tmp_path}/no key'"
