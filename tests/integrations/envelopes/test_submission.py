"""What is handed in: JSON Lines or objects over several lines, and where they are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import limits
from beads_workers.integrations.envelopes.wire import PROBLEMS_MAX, from_fields, read_submission
from tests.integrations.envelopes.test_envelope import DONE, ENQUEUED, ERROR, RUNNING
from tests.support.mistakes import Mistake

LINE = json.dumps(ENQUEUED)
PRETTY = json.dumps(ENQUEUED, indent=2)


def problems(text: str) -> tuple[str, ...]:
    return read_submission(text.encode()).problems


@pytest.mark.parametrize(
    "text", [LINE, PRETTY, f"\n\n{PRETTY}\n\n", LINE + "\r\n", "\ufeff" + LINE, f"  {LINE}  \n"]
)
def test_an_envelope_is_read_however_it_is_laid_out(text: str) -> None:
    found = read_submission(text.encode())
    assert [job.envelope for job in found.jobs] == [from_fields(ENQUEUED)]
    assert found.problems == ()


def test_lines_and_laid_out_ones_may_follow_each_other_and_know_where_they_began() -> None:
    text = f"{LINE}\n\n{PRETTY}\n{PRETTY}\n{LINE}"
    height = PRETTY.count("\n") + 1
    found = read_submission(text.encode(), "jobs.jsonl")
    starts = [1, 3, 3 + height, 3 + 2 * height]
    assert [job.where for job in found.jobs] == [f"jobs.jsonl: line {n}" for n in starts]


def test_every_problem_is_named_with_its_line_and_its_field() -> None:
    bad = json.dumps({k: v for k, v in ENQUEUED.items() if k != "args"})
    text = f'{LINE}\n{bad}\n\nnonsense\n{{"job_id":\n[1]\n{LINE}\n'
    assert problems(text) == (
        "line 2: args: missing or not an array",
        "line 4: not JSON: Expecting value",
        "line 5: not JSON: Expecting value",
        "line 6: not a JSON object",
    )


@pytest.mark.parametrize("fields", [RUNNING, DONE, ERROR])
def test_only_what_is_enqueued_can_be_handed_in(fields: dict[str, Any]) -> None:
    (problem,) = problems(json.dumps(fields))
    assert problem.startswith("line 1: state: ") and repr(fields["state"]) in problem


def test_brackets_inside_of_strings_do_not_count() -> None:
    fields = ENQUEUED | {"args": ['}{"\\', "]\n["]}
    for text in (json.dumps(fields), json.dumps(fields, indent=1)):
        found = read_submission((text + "\n" + LINE).encode())
        assert len(found.jobs) == 2 and not found.problems


def test_one_that_is_too_long_is_refused() -> None:
    (problem,) = problems(json.dumps(ENQUEUED | {"args": ["x" * limits.LINE_BYTES_MAX]}))
    assert problem == f"line 1: longer than {limits.LINE_BYTES_MAX} bytes"


def test_a_file_that_is_no_submission_is_not_read_to_its_end() -> None:
    assert len(problems("[\n" * 1000)) == PROBLEMS_MAX


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
VALUES = st.none() | st.booleans() | st.integers() | NAMES | st.lists(NAMES, max_size=2)


@given(
    st.lists(
        st.tuples(
            NAMES,
            st.lists(VALUES, max_size=3),
            st.dictionaries(NAMES, VALUES, max_size=2),
            st.none() | st.integers(0, 3),
        ),
        max_size=4,
    )
)
def test_whatever_is_handed_in_is_read_whole(jobs: list[tuple[Any, ...]]) -> None:
    sent = [
        ENQUEUED | {"job_id": job_id, "args": args, "kwargs": kwargs}
        for job_id, args, kwargs, _ in jobs
    ]
    texts = [json.dumps(f, indent=job[3]) for f, job in zip(sent, jobs, strict=True)]
    found = read_submission("\n".join(texts).encode())
    assert found.problems == ()
    assert [job.envelope for job in found.jobs] == [from_fields(each) for each in sent]


def test_a_mistake_is_one_line_and_a_remedy(mistake: Mistake) -> None:
    mistake("submit no-such-file", "/no-such-file", "beads-workers submit -", 2)
