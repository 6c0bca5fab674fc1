"""Which repository a text of ``--source`` means."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from beads_workers.core.base.settings import NO_LOGIN_AT
from beads_workers.core.base.source import SourceError
from beads_workers.integrations.forge import KIND, place
from beads_workers.integrations.forge.api import NO_GH_LOGIN, ForgeRepository
from tests.support import warm
from tests.support.repository import make_repository


@pytest.mark.parametrize(
    ("text", "kind", "url", "path"),
    [
        (
            "gitea:https://git.example.org/team/shop",
            "gitea",
            "https://git.example.org",
            "team/shop",
        ),
        ("gitea:http://127.0.0.1:3000/Team/Shop/", "gitea", "http://127.0.0.1:3000", "team/shop"),
        (
            "gitea:https://example.org/git/team/a.b.git",
            "gitea",
            "https://example.org/git",
            "team/a.b",
        ),
        (
            "gitea:git@git.example.org:team/shop.git",
            "gitea",
            "https://git.example.org",
            "team/shop",
        ),
        ("gitea:ssh://git@git.example.org:2222/t/s", "gitea", "https://git.example.org", "t/s"),
        ("github:Team/shop", "github", "https://github.com", "team/shop"),
        ("github:https://ghe.example.org/t/s", "github", "https://ghe.example.org", "t/s"),
        ("forge:git@github.com:team/shop.git", "github", "https://github.com", "team/shop"),
        ("forge:https://github.com/team/shop", "github", "https://github.com", "team/shop"),
        ("forge:https://u:p@git.example.org/t/s.git", "gitea", "https://git.example.org", "t/s"),
    ],
)
def test_a_repository_is_found(text: str, kind: str, url: str, path: str) -> None:
    found = place.find(text, Path("/nonexistent"), {})
    assert (found.kind, found.url, f"{found.owner}/{found.name}") == (kind, url, path)


@pytest.mark.parametrize(
    "text",
    [
        *("gitea:", "gitea:shop", "gitea:https://example.org/", "gitea:https://example.org/shop"),
        *("github:", "github:shop", "github:a/b/c", "forge:https://github.com/team"),
        *("gitea:file:///etc/passwd", "gitea:https://example.org/a b/c", "forge:", "gitea:../a/b"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SourceError, match="names no repository"):
        place.find(text, Path("/nonexistent"))


def test_the_remote_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    url = "https://git.example.org:8443/Team/shop.git"
    subprocess.run(["git", "-C", str(project), "remote", "add", "origin", url], check=True)
    (project / "src").mkdir()
    found = place.locate("forge:", project / "src")
    assert found.folder == project and found.place.is_dir()
    assert found.place.parts[-3:] == ("git.example.org_8443", "team", "shop")
    assert found.options["url"] == "https://git.example.org:8443"


def test_issues_of_two_forges_with_the_same_numbers_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    one, other = (f"gitea:https://git.example.org/team/{name}" for name in ("one", "other"))
    for text in (one, other):
        place.locate(text, project)
    place.remember(str(project), place.find(one, project))
    place.locate(one, project)
    with pytest.raises(SourceError, match="git.example.org/team/one".replace(".", r"\.")):
        place.locate(other, project)
    place.remember(str(tmp_path), place.find(other, tmp_path))
    place.locate(other, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "12",
            "#12",
            "team/shop#12",
            "Team/Shop#12",
            "https://git.example.org/team/shop/issues/12",
        ),
        "https://git.example.org/team/shop/issues/12#issuecomment-7",
    ],
)
def test_an_issue_may_be_named_as_people_name_it(tmp_path: Path, text: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert place.id_of(text, tmp_path) == "12"
    place.remember(
        str(tmp_path), ForgeRepository("gitea", "https://git.example.org", "team", "shop")
    )
    assert place.id_of(text, tmp_path) == "12"


@pytest.mark.parametrize("text", ["team/other#12", "https://github.com/team/shop/issues/12"])
def test_an_issue_of_another_repository_is_refused(tmp_path: Path, text: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    place.remember(
        str(tmp_path), ForgeRepository("gitea", "https://git.example.org", "team", "shop")
    )
    with pytest.raises(SourceError, match="is not of"):
        place.id_of(text, tmp_path)


@pytest.mark.parametrize(
    "text", ["proj-a1b", "a#b", "#", "# 12", "12#", "http://x/y/issues", "#12x"]
)
def test_other_ids_stay_as_they_are(tmp_path: Path, text: str) -> None:
    assert place.id_of(text, tmp_path) == text


def test_variables_that_are_passed_stay_and_all_others_go() -> None:
    options = {"kind": "github", "url": "https://github.com", "pass": ["GH_TOKEN"]}
    assert KIND.secrets is not None
    found = KIND.secrets(options)
    assert "GH_TOKEN" not in found and {"GITHUB_TOKEN", NO_GH_LOGIN} <= {*found}
    assert f"{NO_LOGIN_AT}=https://github.com" in found


def test_commands_say_what_is_missing(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    text = 'source = "gitea:http://127.0.0.1:1/team/shop"\n'
    (project / "beads-workers.toml").write_text(text)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BW_")}
    kept.pop("GITEA_TOKEN", None)
    kept |= {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}
    for command in (
        ("list",),
        ("list", "-s", "all"),
        ("why", "#3"),
        ("show", "3"),
        ("start", "--trust", "--until-empty", "-n", "1", "--", "true"),
        ("doctor", "--", "true"),
    ):
        done = warm.run(command, project, kept, 60, safe=True)
        said = done.stdout + done.stderr
        assert done.returncode == 6 and "no token for http://127.0.0.1:1" in said, (command, said)
        assert "Traceback" not in said
    done = warm.run(("import", "-"), project, kept, 60)
    assert done.returncode == 2 and "no import for the issues of a forge" in done.stderr
    assert place._remembered(project) == "", "nothing was taken"
