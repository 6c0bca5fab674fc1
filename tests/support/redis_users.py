"""The users of docs/HERO.md in a Redis of a test's own."""

from __future__ import annotations

import re
from pathlib import Path

from beads_workers.integrations.hero.connection import Address
from tests.support.peers import Redis

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "HERO.md"


def add_user(redis: Redis, kind: str, folder: Path) -> Address:
    """Have the user of this kind (``client``, ``fleet``) as the document says; how it gets in.

    Nobody else may do anything from then on but ``redis-cli`` of the test, which is ``default``.
    """
    fence = re.search(rf"^```acl {kind}\nuser (\S+) (.+)\n```$", DOCUMENT.read_text(), re.MULTILINE)
    assert fence is not None, f"no rules for {kind} in {DOCUMENT.name}"
    name, rules = fence.groups()
    password = f"of-{kind}"
    words = rules.replace("CHANGE-ME", password).split()
    assert redis.command("acl", "setuser", name, *words).strip() == "OK"
    file = folder / f"password-of-{kind}"
    file.write_text(f"{password}\n")
    file.chmod(0o600)
    return Address(port=redis.port, user=name, password_file=str(file))


def denied(redis: Redis) -> str:
    """What was refused so far, as the Redis logs it."""
    return redis.command("acl", "log")
