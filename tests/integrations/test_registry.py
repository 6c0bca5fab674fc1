"""The registry of kinds: what each recognises, that all it names is there, and one that is gone."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import beads_workers
from beads_workers import registry
from beads_workers.cli.config import resolve
from beads_workers.errors import CommandError
from beads_workers.kinds import KindMissing, Late
from beads_workers.options import FILE_NAME
from beads_workers.registry import KINDS, kind_of, kinds, recognise

PACKAGE = Path(beads_workers.__file__).parent


@pytest.fixture
def without_hero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "hero", "beads_workers.integrations.gone:KIND")
    monkeypatch.setitem(registry.TABLES, "hero", "beads_workers.integrations.gone.options:read")


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_the_name_under_which_it_is_entered(name: str) -> None:
    assert kind_of(name).name == name


@pytest.mark.parametrize("name", KINDS)
def test_whatever_a_kind_names_is_there(name: str) -> None:
    kind = kind_of(name)
    named = [getattr(kind, each.name) for each in fields(kind)]
    late = [each for each in named if isinstance(each, Late)]
    assert all(callable(each.load()) for each in late)


@pytest.mark.parametrize("name", KINDS)
def test_what_pushes_has_an_ingress_and_nothing_else_has_one(name: str) -> None:
    kind = kind_of(name)
    assert (kind.ingress is not None) == kind.capabilities.push
    assert not (kind.prompt and not kind.capabilities.push)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bd", "bd"),
        ("sqlite", "sqlite"),
        ("hero", "hero"),
        ("redis://h/0?worker=w", "hero"),
        ("gitea:https://h/o/r", "forge"),
        ("forge:", "forge"),
        ("forge", None),
        ("dispatcherd:d.yml", "dispatcherd"),
        ("postgresql://h/d", "dispatcherd"),
        ("rrq", None),
        ("dispatcherd", None),
        ("https://h", None),
        ("bd:", None),
    ],
)
def test_a_text_means_one_kind_or_none(text: str, name: str | None) -> None:
    found = recognise(text)
    assert (found and found.name) == name
    assert len([kind for kind in kinds() if kind.recognises(text)]) == (name is not None)


@pytest.mark.usefixtures("without_hero")
def test_a_kind_that_is_not_there_is_passed_over_until_it_is_named() -> None:
    assert [kind.name for kind in kinds()] == ["bd", "sqlite", "rrq", "dispatcherd", "forge"]
    assert recognise("redis://h") is None
    with pytest.raises(KindMissing, match="hero is not part of this installation") as caught:
        recognise("hero")
    assert caught.value.hint == "known are bd, sqlite, rrq, dispatcherd, forge"
    with pytest.raises(KindMissing):
        kind_of("jira")


@pytest.mark.usefixtures("without_hero")
def test_a_table_of_a_kind_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("[hero]\nworker = 'w'\n")
    with pytest.raises(CommandError) as caught:
        resolve({}, tmp_path, {})
    assert "no such kind of source" in caught.value.hint


def test_a_kind_whose_own_imports_fail_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "hero", "tests.sources.importing_nothing:KIND")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        kind_of("hero")
