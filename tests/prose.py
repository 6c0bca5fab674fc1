"""``python -m tests.prose [FILE...]``: sentences that readers stumble over, each with its place.

Four kinds: a sentence that begins with a bare relative ("What is done lands"), "where" for "if" at
the beginning of a clause, more than 35 words, and parentheses in parentheses. Without files it
reads README and docs, the help of all commands, and the messages of the package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS_MAX = 40
"""So many sentences of README and docs were looked at, and stay as they are."""
WORDS_MAX = 35

RELATIVE = re.compile(
    r"(What|Whatever|Whoever|Whichever|Which|Who|Whose|Those (?:of|that|who|which)|"
    r"Ones? that|That which)\b"
)
QUESTION = re.compile(r"Wh\w+ [^.]*\?|What(?: \w+){1,2}: ")
"""A question, or a short label before a colon."""
WHERE = re.compile(r"(?:^|[;:] |, (?:and|but|or) )[Ww]here (?!(?:is|are|to|do|does|can)\b[^.]*\?)")


@dataclass(frozen=True, slots=True)
class Stumble:
    """``place``: file and line; ``why``: the kind."""

    place: str
    why: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}: {self.sentence[:160]}"


def faults(sentence: str) -> Iterator[str]:
    """The kinds of one sentence; code in it is one word."""
    plain = re.sub(r"[*_]{1,2}|^[\W\d]+", "", sentence).strip()
    if RELATIVE.match(plain) and not QUESTION.match(plain):
        yield "it begins with a bare relative"
    if WHERE.search(plain) and not plain.endswith("?"):
        yield '"where" for "if"'
    if len(plain.split()) > WORDS_MAX:
        yield f"{len(plain.split())} words"
    depth = 0
    for character in plain:
        depth += (character == "(") - (character == ")")
        if depth > 1:
            yield "parentheses in parentheses"
            break


def sentences(text: str) -> list[str]:
    """Of one paragraph, in which code and links are one word each."""
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|etc|vs)\.", r"\1", " ".join(text.split()))
    return [each for each in re.split(r"(?<=[.!?])\s+(?=[A-Z*`\"'(C])", text) if each.strip(" |-")]


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Those of a Markdown text, with their lines: headings, code and rules of tables left out."""
    gathered: list[str] = []
    began, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        is_fence = bare.startswith("```")
        fenced ^= is_fence
        starts = re.match(r"([-*+]|\d+\.)\s|\|", bare)
        ends = fenced or is_fence or not bare or bare.startswith(("#", "<", "![")) or starts
        if ends and gathered:
            yield began, " ".join(gathered)
            gathered = []
        if fenced or is_fence or bare.startswith(("#", "<", "![")) or set(bare) <= set("|-: "):
            continue
        if bare.startswith("|"):
            yield from ((number, cell.strip()) for cell in bare.strip("|").split("|"))
            continue
        began = began if gathered else number
        gathered.append(re.sub(r"^([-*+]|\d+\.)\s+|^>\s*", "", bare))


def of_markdown(path: Path) -> Iterator[Stumble]:
    """Those of a document."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for line, paragraph in paragraphs(path.read_text(encoding="utf-8")):
        for sentence in sentences(paragraph):
            for why in faults(sentence):
                yield Stumble(f"{name}:{line}", why, sentence)


def of_messages(path: Path) -> Iterator[Stumble]:
    """Those of the texts in a module that are no docstrings: messages, remedies, help."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for each in ast.iter_child_nodes(node):
            if isinstance(node, ast.Expr | ast.JoinedStr) or not isinstance(
                each, ast.Constant | ast.JoinedStr
            ):
                continue
            text = _text(each)
            if text.count(" ") < 3 or _NO_PROSE.search(text):
                continue
            for sentence in sentences(text):
                for why in faults(sentence):
                    yield Stumble(f"{path.relative_to(ROOT)}:{each.lineno}", why, sentence)


_NO_PROSE = re.compile(
    r"\n|\(\?:|\\|\b(?:SELECT|INSERT|UPDATE|CREATE|FROM|AND|GLOB|local) |\(\(\(| # "
)
"""Programs, SQL, patterns, and texts of several lines, which agents read."""


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.JoinedStr):
        parts = [_text(p) if isinstance(p, ast.Constant) else "X" for p in node.values]
        return "".join(parts)
    return node.value if isinstance(node.value, str) else ""


def documents() -> list[Path]:
    """README and docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def of_help() -> Iterator[Stumble]:
    """Those of the help of all commands, as the oracle keeps it."""
    path = ROOT / "tests" / "oracles" / "golden" / "help.txt"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = re.split(r"\s{2,}", line.strip())[-1]
        for sentence in sentences(text) if text.count(" ") > 2 else ():
            yield from (Stumble(f"help:{number}", why, sentence) for why in faults(sentence))


def messages() -> Iterator[Stumble]:
    """Those of the package."""
    for path in sorted((ROOT / "beads_workers").rglob("*.py")):
        yield from of_messages(path)


def main(names: list[str]) -> int:
    """Print them; 1 if there are more than may be."""
    if names:
        found = [each for name in names for each in of_file(Path(name).resolve())]
        print(*found, sep="\n")
        return int(bool(found))
    in_docs = [each for path in documents() for each in of_markdown(path)]
    elsewhere = [*of_help(), *messages()]
    print(*in_docs, *elsewhere, sep="\n")
    print(f"{len(in_docs)} in README and docs ({DOCS_MAX} at most), {len(elsewhere)} elsewhere")
    return int(len(in_docs) > DOCS_MAX or bool(elsewhere))


def of_file(path: Path) -> Iterable[Stumble]:
    """Those of one document or module."""
    return of_markdown(path) if path.suffix == ".md" else of_messages(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
