"""An open page and the next server prove themselves to each other; nobody else learns the token."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable

import pytest

from beads_workers.ui import web_resumption
from beads_workers.ui.web_resumption import CHALLENGES_MAX, Resumption
from tests.support.web import KEY, TOKEN, Served

PORT, NONCE = 4711, "0123456789abcdef"


def proof(who: str, challenge: str, *, key: str = KEY, port: int = PORT, nonce: str = NONCE) -> str:
    """As the page computes it."""
    said = f"{who} {port} {nonce} {challenge}".encode()
    return hmac.new(key.encode(), said, "sha256").hexdigest()


def asked(resumption: Resumption) -> str:
    """The challenge of a server that has proved itself."""
    told = resumption.challenge(NONCE)
    assert told is not None and told["proof"] == proof("server", told["challenge"])
    return told["challenge"]


def test_both_prove_themselves_and_the_token_is_told_once() -> None:
    resumption = Resumption(KEY, PORT, TOKEN)
    challenge = asked(resumption)
    assert resumption.answer(challenge, proof("page", challenge)) == {"token": TOKEN}
    assert resumption.answer(challenge, proof("page", challenge)) is None, "it is good once"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda challenge: "",
        lambda challenge: "é",
        lambda challenge: TOKEN,
        lambda challenge: challenge,
        lambda challenge: proof("server", challenge),
        lambda challenge: proof("page", challenge, key=TOKEN),
        lambda challenge: proof("page", challenge, port=PORT + 1),
        lambda challenge: proof("page", challenge, nonce="other"),
        lambda challenge: proof("page", challenge[::-1]),
        lambda challenge: proof("page", challenge)[:-1],
    ],
)
def test_nothing_else_is_told_the_token(wrong: Callable[[str], str]) -> None:
    resumption = Resumption(KEY, PORT, TOKEN)
    challenge = asked(resumption)
    assert resumption.answer(challenge, wrong(challenge)) is None
    assert resumption.answer(challenge, proof("page", challenge)) is None, "one try"


def test_what_another_server_of_ours_says_is_worth_nothing_at_this_port() -> None:
    elsewhere = Resumption(KEY, PORT + 1, TOKEN)
    told = elsewhere.challenge(NONCE)
    assert told is not None and told["proof"] != proof("server", told["challenge"])


def test_a_challenge_is_good_for_some_seconds_and_strangers_fill_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resumption = Resumption(KEY, PORT, TOKEN)
    assert resumption.answer("never asked", proof("page", "never asked", nonce="")) is None
    challenge = asked(resumption)
    now = time.monotonic()
    monkeypatch.setattr(web_resumption.time, "monotonic", lambda: now + 60)
    assert resumption.answer(challenge, proof("page", challenge)) is None
    for _ in range(3 * CHALLENGES_MAX):
        resumption.challenge(NONCE)
    assert len(resumption._open) == CHALLENGES_MAX
    assert resumption.challenge("x" * 65) is None and resumption.challenge("a b") is None


def test_only_the_page_itself_may_ask() -> None:
    served = Served()
    head = [f"GET /resume?nonce={NONCE} HTTP/1.1", f"Host: 127.0.0.1:{served.port}"]
    for site in ([], ["Sec-Fetch-Site: cross-site"], ["Sec-Fetch-Site: same-site"]):
        assert b" 403 " in served.call("|".join([*head, *site])).split(b"\r\n")[0]
    assert b" 421 " in served.call(f"{head[0]}|Host: evil.example").split(b"\r\n")[0]
    told = served.call("|".join([*head, "Sec-Fetch-Site: same-origin"]))
    challenge = json.loads(told.partition(b"\r\n\r\n")[2])["challenge"]
    said = proof("page", challenge, port=served.port)
    path = f"GET /resume?challenge={challenge}&proof={said} HTTP/1.1"
    told = served.call("|".join([path, head[1], "Sec-Fetch-Site: same-origin"]))
    assert json.loads(told.partition(b"\r\n\r\n")[2]) == {"token": TOKEN}
    served.close()
