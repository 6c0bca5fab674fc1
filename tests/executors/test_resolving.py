"""Only what a person allowed can be called, whatever a path says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.model import is_module_name
from beads_workers.executors.functions import NotCallable, resolve

ALLOWED = ("shop.tasks", "tools")

FILES = {
    "shop/__init__.py": "def hidden(): pass\n",
    "shop/tasks/__init__.py": "def top(): return 'top'\n",
    "shop/tasks/mail.py": """
import functools
import os
from os import system
from shop.tasks import top
import shop.money as money
def send(to): return to
async def later(): pass
def _private(): pass
NUMBER = 1
class Box:
    @staticmethod
    def open(): return 'opened'
    @classmethod
    def name(cls): return cls.__name__
    def _inner(self): pass
    def __call__(self): pass
BOX = Box.INNER = Box()
@functools.cache
def cached(): return 'kept'
""",
    "shop/tasks/__main__.py": "def go(): pass\n",
    "shop/tasks/_inner.py": "def go(): return 'in'\n",
    "shop/tasks/broken.py": "import nowhere_to_be_found\n",
    "shop/tasks/angry.py": "raise SystemExit('no')\n",
    "shop/tasksets.py": "def send(): pass\n",
    "shop/money.py": "def pay(): pass\n",
    "tools.py": "def hammer(): return 'hit'\n",
}


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] in ("shop", "tools")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("path", "args", "value"),
    [
        ("shop.tasks.mail.send", ("me",), "me"),
        ("shop.tasks.top", (), "top"),
        ("tools.hammer", (), "hit"),
        ("shop.tasks.mail.top", (), "top"),
        ("shop.tasks.mail.Box.open", (), "opened"),
        ("shop.tasks.mail.Box.name", (), "Box"),
        ("shop.tasks.mail.cached", (), "kept"),
    ],
)
def test_functions_in_and_below_an_allowed_module_are_found(
    path: str, args: tuple[str, ...], value: str
) -> None:
    assert resolve(path, ALLOWED)(*args) == value


def test_a_class_can_be_called() -> None:
    assert type(resolve("shop.tasks.mail.Box", ALLOWED)()).__name__ == "Box"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shop.hidden", "not below an allowed module"),
        ("shop.tasksets.send", "not below an allowed module"),
        ("os.system", "not below an allowed module"),
        ("shop.tasks.mail.system", "was made in posix"),
        ("shop.tasks.mail.os.system", "not a function that may be called"),
        ("shop.tasks.mail.os", "not a function"),
        ("shop.tasks.mail.money.pay", "not a function that may be called"),
        ("shop.tasks.mail._private", "is private"),
        ("shop.tasks.mail.Box._inner", "is private"),
        ("shop.tasks.mail.Box.__init__", "is private"),
        ("shop.tasks.mail.send.__globals__", "is private"),
        ("shop.tasks.__main__.go", "is private: '__main__' begins with an underscore"),
        ("shop.tasks._inner.go", "is private: '_inner' begins with an underscore"),
        ("shop.tasks.mail.BOX", "not a function or a class"),
        ("shop.tasks.mail.Box.INNER", "not a function or a class"),
        ("shop.tasks.mail.NUMBER", "not a function"),
        ("shop.tasks.mail.nothing", "there is no 'nothing' in shop.tasks.mail"),
        ("shop.tasks.mail", "there is no 'mail' in shop.tasks|not a function"),
        ("shop.tasks.nowhere.send", "there is no 'nowhere' in shop.tasks"),
        ("shop.tasks.a.b.c.d", "there is no module"),
        (
            "shop.tasks.broken.f",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("shop.tasks.angry.f", "cannot be imported: SystemExit: no"),
        ("lambda: 1", "no path of a function"),
        ("shop.tasks.mail.send()", "no path of a function"),
        ("shop.tasks..send", "no path of a function"),
        ("tools", "no path of a function"),
        ("", "no path of a function"),
        ("tools." + "x" * 600, "no path of a function"),
    ],
)
def test_nothing_else_is(path: str, reason: str) -> None:
    with pytest.raises(NotCallable, match=reason.replace("(", r"\(")):
        resolve(path, ALLOWED)


def test_what_is_private_can_be_called_where_a_person_has_allowed_it_by_name() -> None:
    assert resolve("shop.tasks._inner.go", ("shop.tasks", "shop.tasks._inner"))() == "in"


def test_nothing_private_is_imported_before_it_is_refused() -> None:
    with pytest.raises(NotCallable):
        resolve("shop.tasks.__main__.go", ALLOWED)
    assert "shop.tasks.__main__" not in sys.modules and "shop.tasks" not in sys.modules


def test_nothing_is_imported_that_is_not_allowed() -> None:
    with pytest.raises(NotCallable):
        resolve("shop.money.pay", ("shop.tasks",))
    assert "shop.money" not in sys.modules


def test_without_an_allowed_module_nothing_can_be_called() -> None:
    with pytest.raises(NotCallable, match="not below an allowed module"):
        resolve("tools.hammer", ())


@pytest.mark.parametrize(
    ("text", "holds"), [("a", True), ("a.b_1", True), ("", False), ("a.", False), ("a b", False)]
)
def test_what_can_be_allowed_is_the_name_of_a_module(text: str, *, holds: bool) -> None:
    assert is_module_name(text) is holds
