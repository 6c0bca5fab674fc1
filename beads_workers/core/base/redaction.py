"""Secrets that readers of logs must not see, and the paths below a root that logs may have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

SECRET_CHARS_MIN = 4
"""Minimum length of a secret: shorter ones hide nothing, and would be found in every other word."""

LINE_CHARS_MIN = 8
"""Length from which each line of a secret with several lines, a key for instance, is one itself."""

_NAMES = re.compile(
    "PASS|PWD$|SECRET|TOKEN|KEY|CREDENTIAL|AUTH(?!OR(?!I[SZ]))|PRIVATE|COOKIE|SESSION|SIGNATURE"
    "|HOOK_UR[LI]$",
    re.IGNORECASE,
)
_PLACES = re.compile("DSN|_URL$|_URI$", re.IGNORECASE)
"""Names of variables that are a secret in part: the address of a server."""
_HARMLESS = re.compile(
    "(DESKTOP_|GDM|XDG_|DBUS_)SESSION.*|SESSION_MANAGER|SSH_AUTH_SOCK|.*KEY(BOARD|MAP).*",
    re.IGNORECASE,
)
"""Names of a desktop's variables: they name its parts."""
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:([^/?#]*)@)?([^?#@]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE
)
_KEY_CHARS_MIN = 20

_MASK = ord("*")
_KEPT = frozenset(b"\r\n")
"""Bytes that are not masked: lines stay lines."""


def is_secret(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret."""
    if _HARMLESS.fullmatch(name):
        return False
    return _NAMES.search(name) is not None or _PLACES.search(name) is not None


def secret_parts(name: str, value: str) -> tuple[str, ...]:
    """Return the parts of a variable's value to mask.

    They are none, all of it, or of an address its login, and what looks like a key. A secret of
    several lines is printed a line at a time, so each line is a part.
    """
    if not is_secret(name):
        return ()
    address = None if _NAMES.search(name) else _ADDRESS.fullmatch(value.strip())
    if address is not None:
        return tuple(_parts_of(*address.groups(default="")))
    lines = value.splitlines()
    return (value, *(line for line in lines if len(line) >= LINE_CHARS_MIN and line != value))


def _parts_of(login: str, path: str, query: str) -> Iterator[str]:
    if login:
        # The part includes its surroundings, so that a short one is masked in its address, too.
        yield f"{login}@"
        user, _, password = login.partition(":")
        yield password or user
        yield _decoded(password or user)
        if _is_key(user):
            yield user
    yield from (part for part in path.split("/") if _is_key(part))
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        if value and (_NAMES.search(key) or key.lower() == "sig" or _is_key(value)):
            yield value
            yield _decoded(value)


def _decoded(text: str) -> str:
    """Return a text of an address in its other form: ``%40`` is an @."""
    coded = re.compile("(?:%[0-9A-Fa-f]{2})+")
    return coded.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text
    )


def _is_key(text: str) -> bool:
    """Return whether a text looks like a key: nobody would choose such a name."""
    long = len(text) >= _KEY_CHARS_MIN and re.fullmatch(r"[\w-]+", text, re.ASCII) is not None
    return long and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the texts in these variables that are to be masked, the longest first."""
    found: set[str] = set()
    for name, value in environment.items():
        found.update(p for p in secret_parts(name, value) if len(p) >= SECRET_CHARS_MIN)
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


_SHAPES = re.compile(
    r"\b(?:sk-[\w-]{16,}|gh[opsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
    r"|AKIA[A-Z0-9]{12,}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]+)",
    re.ASCII,
)
"""Keys of well-known services, wherever they stand."""
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=[\"']?([^\s\"'$&]{4,})")
_SECRETS = (
    r"(?:PASSW\w*|PASSPHRASE|SECRET|TOKEN(?!S)|API[_-]?KEY|ACCESS[_-]?KEY|CREDENTIALS?"
    r"|AUTHORIZATION|COOKIE)"
)
_SCHEME = r"(?:Bearer|Basic|Token)\b"
_NAMED = re.compile(
    rf"(?<!\S)--?[\w-]*{_SECRETS}[ \t=]+[\"']?[^\s\"'$-][^\s\"'$]{{3,}}"
    rf"|{_SECRETS}[\"']?:[ \t]*[\"']?(?:{_SCHEME}[ \t]+)?(?!{_SCHEME})[^\s\"'$]{{4,}}"
    r"|(?<!\S)(?:-u|--user)[ \t=]+[^\s\"':$]+:[^\s\"'$]+",
    re.IGNORECASE,
)
"""A flag or a header with its value; a value that is a variable is none."""
_LOGIN = re.compile(r"[A-Za-z][\w+.-]*://([^/\s\"'?#@:]*)(?::([^/\s\"'@]*))?@")
_TYPED_CHARS_MIN = 8
"""Length from which the value of a secret variable is found in a typed word: a shorter one may be a
word of any command."""


def typed_secret(word: str, environment: Mapping[str, str], before: str = "") -> bool:
    """Return whether a word of a command line probably holds a secret.

    The secrets of the environment count, which a shell has put there; logins in addresses; keys of
    well-known services; and values of what is named like a secret. ``before``: the word before it.
    """
    known = (each for each in secrets_of(environment) if len(each) >= _TYPED_CHARS_MIN)
    if _SHAPES.search(word) or any(each in word for each in known):
        return True
    for user, password in _LOGIN.findall(word):
        if (password and not password.startswith("$")) or _is_key(user):
            return True
    if any(_NAMES.search(name) and not value.isdigit() for name, value in _ASSIGNED.findall(word)):
        return True
    line = f"{before} {word}" if before.startswith("--") and not word.startswith("-") else word
    return _NAMED.search(line) is not None


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables as people may see them: names, and no values."""
    return dict.fromkeys(environment, "***")


def masked(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """Return the data, of the same length, with ``*`` in the place of every secret."""
    for secret in secrets:
        if secret in data:
            data = data.replace(secret, bytes(b if b in _KEPT else _MASK for b in secret))
    return data


# --- log paths -----------------------------------------------------------------------------------
# Rules for a path below a root: the part that needs no look at the disk.


PARTS_MAX = 32
NAME_BYTES_MAX = 240
"""Maximum length of a name: a rotated log has a number behind it, and a name has 255 bytes."""


class UnsafePath(Exception):
    """The path does not lead to a file of ours below the root; ``str()`` is one line."""


def parts_below(root: str, path: str) -> tuple[str, ...]:
    """Return the names from the root to the file.

    ``path`` is relative to the root, or begins with it. Raise ``UnsafePath``.
    """
    if path.startswith("/"):
        base = root.rstrip("/") + "/"
        if not path.startswith(base):
            raise UnsafePath(f"it is not below {root}")
        path = path.removeprefix(base)
    parts = [part for part in path.split("/") if part]
    if not parts or path.endswith("/"):
        raise UnsafePath("it names no file")
    if len(parts) > PARTS_MAX:
        raise UnsafePath(f"it has more than {PARTS_MAX} parts")
    for part in parts:
        if part in (".", ".."):
            raise UnsafePath(f"it holds {part!r}")
        if not part.isprintable() or len(part.encode("utf-8", "replace")) > NAME_BYTES_MAX:
            raise UnsafePath("it holds a name that is too long, or cannot be printed")
    return tuple(parts)
