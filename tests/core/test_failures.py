"""What failed, by the recorded outputs of real runners: ``runner_outputs.tar.xz``.

The archive has the outputs of 84 variants of test runners, linters, type checkers and builders,
what fails in each (``INDEX.json``), their versions, and the scripts that made the projects and
recorded them (``record/``).
"""

from __future__ import annotations

import json
import random
import re
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.causes import cause_of
from beads_workers.core.base.failures import FailureReader
from beads_workers.core.base.runners import RUNNERS

ARCHIVE = Path(__file__).with_name("runner_outputs.tar.xz")
NOT_READ = re.compile(
    # Runs that end before a test has a name: the last line that says something is the reason.
    r"(ava|bun-test|deno-test|just|minitest|n?p?m?-?mocha|node-test.*|phpunit|playwright.*|pnpm-r"
    r"|rspec|pytest-xdist)/build"
    # A runner whose own process broke while it was recorded, and outputs before the name.
    r"|node-tap/.*|ctest-v/.*|phpunit-testdox/colour"
)


@cache
def recorded() -> tuple[dict[str, Any], dict[str, bytes]]:
    """What fails in each case, and the outputs."""
    outputs, index = {}, b""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if (file := archive.extractfile(member)) is None:
                continue
            if name == "INDEX.json":
                index = file.read()
            elif name.startswith("outputs/"):
                outputs[name.removeprefix("outputs/").removesuffix(".txt")] = file.read()
    return json.loads(index), outputs


def said(case: str, data: bytes | None = None) -> str:
    """The reason, read in pieces as a pipe gives them."""
    runner, _, kind = case.partition("/")
    reader = FailureReader(f"/srv/runners/projects/{runner}/{'one' if kind == 'colour' else kind}")
    data = recorded()[1][case] if data is None else data
    for at in range(0, len(data), 4093):
        reader.feed(data[at : at + 4093])
    return reader.reason()


def plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def is_said(found: str, item: dict[str, Any], *, has_values: bool) -> bool:
    """Whether a reason names this item, and one line of its message."""
    head, name = plain(found.split('": ')[0]), plain(item["name"])
    named = bool(head) and (name in head or head.endswith(name[-20:]) or head in name)
    named = named or plain(item.get("file") or "~") in plain(found) != ""
    lines = [plain(line.removeprefix("error: ")) for line in item["message"].split("\n")]
    return named and (not has_values or any(each and each[:40] in plain(found) for each in lines))


@pytest.mark.parametrize("case", [each for each in recorded()[0] if not NOT_READ.match(each)])
def test_the_reason_is_a_failing_item_and_its_message(case: str) -> None:
    known, found = recorded()[0][case], said(case)
    # prettier says it once for all.
    has_values = known.get("values_in_output") is not False and "prettier" not in case
    assert any(is_said(found, item, has_values=has_values) for item in known["failing"]), found
    assert len(found) < 900 and found.isprintable()


@pytest.mark.parametrize(
    "case", [each for each in recorded()[0] if each.endswith("/three") and not NOT_READ.match(each)]
)
def test_three_failures_are_three_causes_whatever_their_order(case: str) -> None:
    """Each failing part of an output by itself has a cause of its own; the whole has the first."""
    reader = FailureReader()
    reader.feed(recorded()[1][case])
    found = {cause_of(f"verify failed: {each}") for each in reader.all_reasons()}
    failing = recorded()[0][case]["failing"]
    assert len(found) >= min(2, len({(each["name"], each.get("file")) for each in failing})), found
    assert cause_of(f"verify failed: {reader.reason()}") in found


@pytest.mark.parametrize(
    "runner", [each.split("/")[0] for each in recorded()[1] if each.endswith("/colour")]
)
def test_colours_change_nothing(runner: str) -> None:
    if not NOT_READ.match(f"{runner}/colour"):
        one, coloured = said(f"{runner}/one"), said(f"{runner}/colour")
        assert re.sub(r"[\d.]+", "#", coloured) == re.sub(r"[\d.]+", "#", one)


@pytest.mark.parametrize(
    "case", [each for each in recorded()[0] if each.endswith("/many") and not NOT_READ.match(each)]
)
def test_of_three_hundred_it_is_the_first_by_name(case: str) -> None:
    assert re.search(r"case[ _]?1\b", said(case), re.IGNORECASE), said(case)


def test_the_same_failure_in_three_worktrees_is_one_cause() -> None:
    output = recorded()[1]["node-test/three"]
    found = set()
    for number in range(3):
        reader = FailureReader(f"/tmp/worktrees/w-{number}.1")
        reader.feed(
            output.replace(
                b"/srv/runners/projects/node-test/three", b"/tmp/worktrees/w-%d.1" % number
            )
        )
        found.add(cause_of(f"verify failed: {reader.reason()}", f"w-{number}"))
    assert len(found) == 1 and "cart.test.js" in found.pop()


def test_parts_of_one_test_are_two_causes_and_their_values_are_none() -> None:
    price = 'verify failed: "test_cart.py::test_price[1]": assert 3 == 4'
    other = 'verify failed: "test_user.py::test_price[2]": assert 3 == 4'
    assert cause_of(price) != cause_of(other)
    assert cause_of(price) == cause_of(price.replace("3", "17"))
    assert cause_of(cause_of(price)) == cause_of(price)


@given(st.sampled_from(sorted(recorded()[1])), st.randoms(use_true_random=False))
def test_it_does_not_matter_how_the_output_is_cut(case: str, chance: random.Random) -> None:
    data = recorded()[1][case][:60_000]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(5))
    whole, cut = FailureReader(), FailureReader()
    whole.feed(data)
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        cut.feed(data[begin:end])
    assert cut.reason() == whole.reason()


@given(st.binary(max_size=400))
def test_nothing_that_is_printed_breaks_it(data: bytes) -> None:
    reader = FailureReader("/x")
    reader.feed(data)
    assert reader.reason().isprintable()


def test_each_row_of_the_table_is_needed() -> None:
    """Some recorded output begins with an item of each runner, or of nobody's making."""
    lines = [
        line
        for data in recorded()[1].values()
        for line in data.decode(errors="replace").split("\n")
    ]
    text = "\n".join(lines[:400_000])
    unseen = [
        each.item for each in RUNNERS if not re.search(f"^(?:{each.item})", text, re.MULTILINE)
    ]
    assert len(unseen) <= 3, unseen


def test_a_failure_after_thousands_that_passed_is_found() -> None:
    reader = FailureReader()
    for name in map(str, range(6000)):
        passed = (
            f"=== RUN   TestP{name}",
            "    x_test.go:1: fine",
            f"--- PASS: TestP{name} (0.00s)\n",
        )
        reader.feed("\n".join(passed).encode())
    reader.feed(b"=== RUN   TestBad\n    x_test.go:9: got 3\n--- FAIL: TestBad (0.00s)\n")
    reader.feed(b"FAIL\texample.com/x\t1s\n")
    assert reader.reason() == '"example.com/x: TestBad": x_test.go:9: got 3'


def test_of_an_endless_output_the_beginning_and_the_end_are_read() -> None:
    reader = FailureReader()
    for _ in range(40):
        reader.feed("".join(f"{number} of many lines\n" for number in range(20_000)).encode())
    reader.feed(b"FAILED tests/a.py::test_b - no\n")
    assert reader.reason() == '"tests/a.py::test_b": no'
