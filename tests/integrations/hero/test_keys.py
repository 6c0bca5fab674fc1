"""Names of keys: the text's own, the later ones, and what a cluster needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.integrations.hero.wire import CLUSTER, LATER, NAMINGS, Keys, keys_of

IDS = st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=30)


def test_keys_are_named_as_the_text_has_them() -> None:
    keys = Keys()
    assert keys.job_key("j") == "hero:job:j"
    assert keys.work_key("w") == "hero:work_queue:w"
    assert keys.stop_key("w") == "hero:stop_queue:w"
    assert keys.reply_key("j") == "hero:reply:j"


def test_the_later_naming_is_a_setting() -> None:
    assert LATER.work_key("osis") == "hero:q:work:type:osis"
    assert LATER.stop_key("osis") == "hero:q:ctl:type:osis"
    assert LATER.reply_key("j") == "hero:q:reply:j"


def test_a_hash_tag_keeps_its_braces() -> None:
    assert CLUSTER.job_key("j") == "{hero}:job:j"
    assert CLUSTER.own_key("w", "held") == "{hero}:beads_workers:w:held"


def test_single_templates_replace_those_of_a_naming() -> None:
    keys = keys_of("later", {"job": "x:{id}"})
    assert (keys.job, keys.work) == ("x:{id}", LATER.work)


@pytest.mark.parametrize("naming", NAMINGS)
@given(job_id=IDS)
def test_the_id_in_a_key_is_found_again(naming: str, job_id: str) -> None:
    keys = keys_of(naming)
    assert keys.job_id_of(keys.job_key(job_id)) == job_id


@given(IDS, IDS)
def test_braces_in_an_id_stay_what_they_are(before: str, after: str) -> None:
    job_id = f"{before}{{id}}{{{{{after}}}}}"
    assert Keys().job_key(job_id) == "hero:job:" + job_id


def test_another_key_has_no_id() -> None:
    assert Keys().job_id_of("hero:reply:j") is None
    assert Keys().job_id_of("hero:job:") is None


def test_what_scan_takes_for_a_pattern_is_escaped() -> None:
    assert Keys(job="a*[b]:{id}?").jobs_pattern() == r"a\*\[b\]:*\?"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({"job": "hero:job"}, "job holds {id} once"),
        ({"job": "hero:{id}:{id}"}, "job holds {id} once"),
        ({"work": "hero:{id}"}, "work holds {worker} once"),
        ({"reply": "hero:{id}:{x}"}, "reply has a stray brace"),
        ({"stop": ""}, "stop is empty"),
        ({"own": "a\nb"}, "own is empty, or not printable"),
        ({"stop": "hero:work_queue:{worker}"}, "the same"),
        ({"queue": "x"}, "no such key: 'queue'"),
    ],
)
def test_a_wrong_template_is_refused_by_name(template: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("{", r"\{")):
        keys_of("text", template)


def test_an_unknown_naming_is_refused() -> None:
    with pytest.raises(ValueError, match="no such naming: 'old'"):
        keys_of("old")
