"""The fallback: texts of failures as they were seen, and the moments that they name."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beads_workers.agents import texts
from beads_workers.agents.events import Kind

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")

SEEN = {
    "You've hit your 5-hour limit · resets 10:22am (UTC)": Kind.LIMITED,
    "You've hit your Opus limit · resets Nov 25, 7:43pm (UTC)": Kind.LIMITED,
    "You’ve hit your usage limit. Try again at 10:20 AM.": Kind.LIMITED,
    "Claude AI usage limit reached|1760000400": Kind.LIMITED,
    "5-hour limit reached ∙ resets 2am": Kind.LIMITED,
    "You're out of extra usage · resets 5pm (Europe/Paris)": Kind.LIMITED,
    '{"error":{"type":"usage_limit_reached"}}': Kind.LIMITED,
    "[API Error: You have exhausted your daily quota on this model.]": Kind.LIMITED,
    "429 The usage limit has been reached": Kind.LIMITED,
    "litellm.RateLimitError: The API provider has rate limited you.": Kind.TRANSIENT,
    "Not logged in · Please run /login": Kind.NEEDS_PERSON,
    "No API key found for anthropic.": Kind.NEEDS_PERSON,
    "Authentication failed": Kind.NEEDS_PERSON,
    "\x1b[31mprovider.auth\x1b[0m_error: 401": Kind.NEEDS_PERSON,
    '401 {"type":"error","error":{"type":"authentication_error"}}': Kind.NEEDS_PERSON,
    "The API provider is not able to authenticate you.": Kind.NEEDS_PERSON,
    "Invalid API key · Fix external API key": Kind.NEEDS_PERSON,
    "Credit balance is too low": Kind.NEEDS_PERSON,
    "Quota exceeded. Check your plan and billing details.": Kind.NEEDS_PERSON,
    "unexpected status 401 Unauthorized: x, url: y": Kind.NEEDS_PERSON,
    "API key not valid. Please pass a valid API key.": Kind.NEEDS_PERSON,
    "Failed to authenticate. API Error: 401 OAuth token has expired.": Kind.NEEDS_PERSON,
    "Missing environment variable: `OPENAI_API_KEY`.": Kind.NEEDS_PERSON,
    "There's an issue with the selected model (x). It may not exist": Kind.NEEDS_PERSON,
    "404 The requested model 'x' does not exist.": Kind.NEEDS_PERSON,
    "API Error: Repeated 529 Overloaded errors": Kind.TRANSIENT,
    "API Error: Server is temporarily limiting requests (not your usage limit)": Kind.TRANSIENT,
    "API Error: Connection to the API was lost (ECONNRESET).": Kind.TRANSIENT,
    "Selected model is at capacity. Please try a different model.": Kind.TRANSIENT,
    "We’re currently experiencing high demand": Kind.TRANSIENT,
    "exceeded retry limit, last status: 429 Too Many Requests": Kind.TRANSIENT,
    "API Error: Request rejected (429) · slow down": Kind.TRANSIENT,
    "unexpected status 502 Bad Gateway: x": Kind.TRANSIENT,
    "stream disconnected before completion: network error": Kind.TRANSIENT,
    "TypeError: fetch failed": Kind.TRANSIENT,
    "Last error: Failed native model HTTP request: error decoding": Kind.TRANSIENT,
    "[API Error: terminated]": Kind.TRANSIENT,
    '429 {"type":"error","error":{"type":"rate_limit_error"}}': Kind.TRANSIENT,
    "No conversation found with session ID: 0-1": Kind.UNFINISHED,
    "No session found matching '0-1'": Kind.UNFINISHED,
    'error: failed to run prompt: Session "session_1" not found.': Kind.UNFINISHED,
    "No saved session found with ID 0-1.": Kind.UNFINISHED,
    "The tool isn't available, so its deferred call didn't run": Kind.UNFINISHED,
    "Error: Session ID 0-1 is already in use.": Kind.UNFINISHED,
    "thread/resume failed: no rollout found for thread id 0-1": Kind.UNFINISHED,
}


@pytest.mark.parametrize("text", SEEN)
def test_a_text_that_was_seen_is_recognised(text: str) -> None:
    found = texts.recognise(f"something before\n{text}\nsomething behind")
    assert found is not None
    assert found.kind is SEEN[text]
    assert found.session_lost is (found.kind is Kind.UNFINISHED)


def test_every_pattern_has_a_text_that_it_alone_finds_first() -> None:
    assert {texts.recognise(text) for text in SEEN} == set(texts.PATTERNS)


@pytest.mark.parametrize(
    "text", ["", "Done.", "I added a limit of 5 to the cart.", "the limit on hour 3", "x" * 9999]
)
def test_other_words_are_not_recognised(text: str) -> None:
    assert texts.recognise(text) is None


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("You’ve hit your usage limit. Upgrade to Pro.", "You’ve hit your usage limit."),
        ("\n  a\tb \nc", "a b"),
        ("e.g. this one", "e.g. this one"),
        ("x" * 500, "x" * 159 + "…"),
        ("", ""),
    ],
)
def test_a_sentence_is_the_beginning(text: str, short: str) -> None:
    assert texts.sentence(text) == short


# --- resets -----------------------------------------------------------------------------------

NOW = datetime(2026, 11, 22, 9, 33, 20, tzinfo=UTC)


def at(text: str, now: datetime = NOW, zone: ZoneInfo | None = None) -> datetime | None:
    """The reset, in UTC."""
    found = texts.reset(text, now.timestamp(), zone or ZoneInfo("UTC"))
    return None if found is None else datetime.fromtimestamp(found, UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You've hit your 5-hour limit · resets 10:22am (UTC)", (11, 22, 10, 22)),
        ("resets 9:30am (UTC)", (11, 22, 9, 30)),
        ("resets 9:33am (UTC)", (11, 22, 9, 33)),
        ("resets 8:34am (UTC)", (11, 22, 8, 34)),
        ("resets 8:33am (UTC)", (11, 23, 8, 33)),
        ("try again at Nov 22nd, 2026 9:20 AM.", (11, 22, 9, 20)),
        ("5-hour limit reached ∙ resets 2am", (11, 23, 2, 0)),
        ("resets 12am", (11, 23, 0, 0)),
        ("resets 12:05pm", (11, 22, 12, 5)),
        ("resets 4pm (Europe/Berlin)", (11, 22, 15, 0)),
        ("resets 5:10pm (Nowhere/At_All)", (11, 22, 17, 10)),
        ("resets Nov 25, 7:43pm (UTC)", (11, 25, 19, 43)),
        ("resets Dec 3 at 4pm (America/New_York)", (12, 3, 21, 0)),
        ("or try again at Nov 25th, 2026 8:25 AM.", (11, 25, 8, 25)),
        ("try again at 10:20\u202fAM.", (11, 22, 10, 20)),
        ("Try again at 22:20.", (11, 22, 22, 20)),
        ("resets Nov 25 (UTC)", (11, 25, 0, 0)),
        ("Claude AI usage limit reached|1795342974", (11, 22, 10, 22)),
        ("Claude AI usage limit reached|1795342974000", (11, 22, 10, 22)),
        ("try again in 2 hours 13 minutes", (11, 22, 11, 46)),
        ("Please retry after 7200 seconds.", (11, 22, 11, 33)),
        ("Your quota will reset after 18h20m10s.", (11, 23, 3, 53)),
        ("try again in 1 day, 4 hours and 5 minutes", (11, 23, 13, 38)),
    ],
)
def test_a_reset_is_the_nearest_such_moment(text: str, expected: tuple[int, ...]) -> None:
    found = at(text)
    assert found is not None
    assert (found.month, found.day, found.hour, found.minute) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("try again later.", "resets soon", "", "resets 25:10", "resets 13pm", "resets 7"),
        *("try again at Nov 25th, 2025 8:25 AM.", "usage limit reached|1760000400"),
        *("usage limit reached|9999999999", "resets Feb 30 at 4pm", "try again at Foo 3rd"),
        "try again at Mar 1st, 2027 8:25 AM.",
    ],
)
def test_what_names_no_moment_or_a_past_or_distant_one_is_unknown(text: str) -> None:
    assert at(text) is None


def test_new_year_is_passed() -> None:
    eve = datetime(2026, 12, 31, 23, 59, 50, tzinfo=UTC)
    assert at("resets Jan 2, 3am", eve) == datetime(2027, 1, 2, 3, tzinfo=UTC)
    after = datetime(2027, 1, 1, 0, 0, 20, tzinfo=UTC)
    last = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert at("resets Dec 31, 11:59pm", after) == at("resets 11:59pm", after) == last
    assert at("resets Dec 31, 10:59pm", after) is None


def test_an_hour_that_comes_twice_is_the_nearest_one() -> None:
    """On 2026-10-25 Berlin has 02:30 at 00:30 and again at 01:30 UTC."""
    first, second = (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))
    for minutes, expected in ((-20, first), (10, first), (40, second), (70, second)):
        now = first + timedelta(minutes=minutes)
        assert at("resets 2:30am", now, BERLIN) == expected


def test_without_a_zone_the_rules_of_this_machine_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold at the reset, and not only now: New York's clocks go forward in between."""
    now = datetime(2027, 3, 14, 4, 0, tzinfo=UTC)
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        found = texts.reset("try again at 3:30 AM.", now.timestamp(), None)
    time.tzset()
    assert found == datetime(2027, 3, 14, 7, 30, tzinfo=UTC).timestamp()


def test_an_hour_that_is_left_out_does_not_lose_a_day() -> None:
    """On 2027-03-14 New York has no 02:30."""
    before = datetime(2027, 3, 14, 6, 0, tzinfo=UTC)
    found = at("resets 2:30am", before, NEW_YORK)
    assert found is not None
    assert timedelta(0) < found - before < timedelta(hours=2)


ZONES = st.sampled_from([ZoneInfo("UTC"), BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe")])
MOMENTS = st.integers(1_750_000_000, 1_900_000_000)


@settings(deadline=None)
@given(MOMENTS, st.integers(0, 7 * 86_400), ZONES, st.booleans())
@example(1_792_888_800, 3_600, BERLIN, False)
def test_a_moment_that_a_program_writes_is_read_back(
    now: int, wait: int, zone: ZoneInfo, with_date: bool
) -> None:
    """Within a day by its time alone, else by its date; hours that come twice may be the other."""
    wait = wait if with_date else wait % 72_000
    moment = now + wait
    local = datetime.fromtimestamp(moment, zone)
    clock = local.strftime("%I:%M%p").lower().lstrip("0")
    day = f"{local:%b} {local.day}, " if with_date else ""
    found = texts.reset(f"limit · resets {day}{clock} ({zone.key})", float(now), UTC)
    assert found is not None
    whole_minute = moment - moment % 60
    overlap = (
        {0, 1800, 3600}
        if local.utcoffset() != (local - timedelta(hours=2)).utcoffset()
        or (local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset())
        else {0}
    )
    assert abs(found - whole_minute) in overlap
    assert found > now - texts.PASSED_SECONDS


@settings(deadline=None)
@given(st.text(max_size=60), MOMENTS, ZONES)
def test_no_text_raises_or_leads_far(text: str, now: int, zone: ZoneInfo) -> None:
    found = texts.reset(f"resets {text}", float(now), zone)
    assert found is None or now - texts.PASSED_SECONDS < found <= now + texts.RESET_SECONDS_MAX


@settings(deadline=None)
@given(
    st.from_regex(r"(again|resets) (in )?[0-9a-zA-Z :,()/|]{0,40}", fullmatch=True), MOMENTS, ZONES
)
def test_nothing_that_looks_like_a_reset_raises(text: str, now: int, zone: ZoneInfo) -> None:
    found = texts.reset(text, float(now), zone)
    assert found is None or now - texts.PASSED_SECONDS < found <= now + texts.RESET_SECONDS_MAX
