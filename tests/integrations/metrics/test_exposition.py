"""The text format, as the real Prometheus client reads it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as read

from beads_workers.integrations.metrics import figures

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.floats(allow_nan=False) | st.integers(0, 1 << 60).map(float)
samples = st.builds(
    figures.Sample,
    values,
    st.dictionaries(st.sampled_from("abc"), texts).map(lambda d: tuple(d.items())),
)
families = st.builds(
    figures.Family,
    st.just("beads_workers_x"),
    st.just("gauge"),
    texts.map(str.strip),
    st.lists(samples, min_size=1, max_size=4).map(tuple),
)


@given(families)
def test_whatever_a_label_or_help_holds_the_real_parser_reads_it_back(
    family: figures.Family,
) -> None:
    (found,) = read(figures.to_text([family]))
    assert (found.name, found.type) == (family.name, family.kind)
    assert [(dict(s.labels), s.value) for s in found.samples] == [
        (dict(s.labels), s.value) for s in family.samples
    ]


@given(families)
def test_json_comes_back_as_it_was(family: figures.Family) -> None:
    assert figures.from_json(figures.to_json([family])) == [family]


def test_help_and_labels_are_escaped_as_the_format_says() -> None:
    family = figures.Family("n", "gauge", "a\\b\nc", (figures.Sample(1, (("l", 'x\\y"z\n'),)),))
    assert figures.to_text([family]) == (
        '# HELP n a\\\\b\\nc\n# TYPE n gauge\nn{l="x\\\\y\\"z\\n"} 1\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((3, "3"), (3.0, "3"), (0.25, "0.25"), (0, "0"), (1e300, "1e+300")),
        *((math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")),
    ],
)
def test_a_number_is_written_the_short_way(value: float, text: str) -> None:
    assert figures.number(value) == text
