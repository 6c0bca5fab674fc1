"""Our requests, and the answers of our GitHub, are such as GitHub's public descriptions have them.

``scripts/setup-peers descriptions`` installs those: the OpenAPI description of the REST API, and
the schema of the GraphQL API.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from graphql import GraphQLSchema, build_schema, graphql_sync, parse, validate
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from beads_workers.core.base.source import Action, Result, Settlement
from beads_workers.integrations.forge import github, rest
from beads_workers.integrations.forge.api import ForgeError, Gone, IssueChange
from beads_workers.integrations.forge.github import THREAD, GitHub
from beads_workers.integrations.forge.rest import Transport
from beads_workers.integrations.forge.web import HttpAnswer
from tests.contracts.pull_sources import settled, taken
from tests.integrations.forge.test_source import key, source
from tests.integrations.forge.tracker import LOGIN, GitHubTracker
from tests.support.github import Exchange

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[3]
COMPONENT = "component:"
OF_PULLS = ("hurdles", "ask_for")
EVERYWHERE = ("401", "404")
"""Statuses that are answered whether an operation's description has them or not."""

Json = dict[str, Any]


# --- the descriptions ----------------------------------------------------------------------------

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _is_time(text: object) -> bool:
    return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None


@FORMATS.checks("uri")
def _is_address(text: object) -> bool:
    return not isinstance(text, str) or bool(urlsplit(text).scheme)


def plain(schema: Any, *, is_whole: bool = True) -> Any:
    """Return a schema of OpenAPI 3.0 as one of JSON Schema. Objects that are described whole, which
    those below ``allOf`` are not, have no fields but those."""
    if isinstance(schema, list):
        return [plain(each, is_whole=is_whole) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return {"$ref": f"{COMPONENT}{schema['$ref'].rpartition('/')[2]}"}
    made = {name: plain(each, is_whole=name != "allOf") for name, each in schema.items()}
    if is_whole and isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    if made.get("nullable") is True:
        return {"anyOf": [{"type": "null"}, made]}
    return made


class Description:
    """The OpenAPI description; ``problems`` holds an exchange to it."""

    def __init__(self, folder: Path) -> None:
        self._all = json.loads((folder / "rest.json").read_bytes())
        self._registry: Registry[Any] = Registry(retrieve=self._component)  # type: ignore[call-arg]
        names = {re.sub(r"\{\w+\}", "([^/]+)", path): path for path in self._all["paths"]}
        self._paths = [(re.compile(pattern), path) for pattern, path in names.items()]

    def operation(self, exchange: Exchange) -> tuple[str, Json, dict[str, str]]:
        """Return the name of an operation, its description, and what its path says. Raises
        ``LookupError`` if there is none."""
        for pattern, path in self._paths:
            match = pattern.fullmatch(exchange.path)
            found = self._all["paths"][path].get(exchange.method.lower())
            if match is not None and found is not None:
                said = zip(re.findall(r"\{(\w+)\}", path), match.groups(), strict=True)
                return found["operationId"], found, {name: unquote(text) for name, text in said}
        raise LookupError(f"{exchange.method} {exchange.path}: no such operation")

    def problems(self, exchange: Exchange) -> Iterator[str]:
        """Say what is not as it is described: of the request, and of the answer."""
        try:
            name, operation, said = self.operation(exchange)
        except LookupError as error:
            yield str(error)
            return
        known = {each["name"]: each for each in map(self._found, operation.get("parameters", ()))}
        for place, texts in (("path", said), ("query", exchange.query)):
            for parameter, text in texts.items():
                described = known.get(parameter)
                if described is None or described["in"] != place:
                    yield f"{name}: there is no parameter {parameter}"
                    continue
                is_number = described["schema"].get("type") == "integer" and text.isdigit()
                told = int(text) if is_number else text
                yield from self._wrong(f"{name}: {parameter}", described["schema"], told)
        wanted = self._found(operation.get("requestBody", {})).get("content", {})
        if wanted:
            yield from self._wrong(f"{name}: body", _schema(wanted), exchange.body)
        elif exchange.body:
            yield f"{name}: it takes no body"
        yield from self._answer_problems(name, operation["responses"], exchange)

    def _answer_problems(self, name: str, answers: Json, exchange: Exchange) -> Iterator[str]:
        what = f"{name}: {exchange.status}"
        answer = answers.get(str(exchange.status))
        if answer is None and str(exchange.status) not in EVERYWHERE:
            yield f"{what}: no such answer"
            return
        error = {"content": {"": {"schema": {"$ref": "#/components/schemas/basic-error"}}}}
        described = self._found(error if answer is None else answer).get("content", {})
        if described:
            yield from self._wrong(what, _schema(described), exchange.found)
        elif exchange.found is not None:
            yield f"{what}: it has no body"

    def _wrong(self, what: str, schema: Json, data: Any) -> Iterator[str]:
        checker = Draft202012Validator(
            plain(schema), registry=self._registry, format_checker=FORMATS
        )
        for error in checker.iter_errors(data):
            yield f"{what}: {error.json_path}: {error.message:.300}"

    def _component(self, uri: str) -> Resource[Any]:
        schema = self._all["components"]["schemas"][uri.removeprefix(COMPONENT)]
        return Resource.from_contents(plain(schema), default_specification=DRAFT202012)

    def _found(self, part: Json) -> Json:
        """Return what a reference to a parameter, body or answer stands for."""
        while "$ref" in part:
            _, kind, name = part["$ref"].rsplit("/", 2)
            part = self._all["components"][kind][name]
        return part


def _schema(content: Json) -> Json:
    """Return the schema of a body, whose only kind is JSON."""
    found: Json = next(iter(content.values()))["schema"]
    return found


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder of the descriptions, as the project's script installs them."""
    words = [str(ROOT / "scripts" / "setup-peers"), "descriptions"]
    return Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="module")
def description(folder: Path) -> Description:
    return Description(folder)


@pytest.fixture(scope="module")
def schema(folder: Path) -> GraphQLSchema:
    return build_schema((folder / "schema.graphql").read_text(), assume_valid=True)


# --- the conversation ----------------------------------------------------------------------------


class Noting:
    """``Transport`` that notes from which lines of which modules it is asked."""

    def __init__(self, inner: Transport, lines: set[tuple[str, int]]) -> None:
        self._inner, self._lines = inner, lines
        self.calls, self.said_at = inner.calls, inner.said_at

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in (rest.__name__, github.__name__):
            self._lines.add((frame.f_globals["__name__"], frame.f_lineno))
            assert frame.f_back is not None
            frame = frame.f_back
        answer = self._inner.ask(method, path, body)
        self.said_at = self._inner.said_at
        return answer


def calls_of(module: Any) -> Iterator[tuple[str, int]]:
    """The lines on which an adapter asks its forge, but for pull requests: whole fleets do that."""
    whole = ast.parse(inspect.getsource(module))
    functions = (each for each in ast.walk(whole) if isinstance(each, ast.FunctionDef))
    left_out = {n for each in functions if each.name in OF_PULLS for n in ast.walk(each)}
    for node in (each for each in ast.walk(whole) if each not in left_out):
        match node:
            case ast.Call(func=ast.Attribute(attr="_ask" | "_pages")):
                yield module.__name__, node.lineno


class Conversation:
    """Everything that the adapter can ask, asked once. ``lines``: those it was asked from."""

    def __init__(self, here: GitHubTracker) -> None:
        self.heard: list[Exchange] = []
        self.lines: set[tuple[str, int]] = set()
        self._here = here
        here.at.heard = self.heard.append
        here.at.rights["renovate[bot]"] = "read"
        self._adapter()
        self._fleet()
        self._errors()

    def _forge(self) -> GitHub:
        forge = self._here.forge()
        assert isinstance(forge, GitHub)
        forge._transport = Noting(forge._transport, self.lines)
        return forge

    def _adapter(self) -> None:
        at, forge = self._here.at, self._forge()
        forge.describe()
        text = IssueChange("one", "a body", labels_on=("ready", "P1"), assignees=("alice",))
        one, other, below = forge.create(text), at.issue("other"), at.issue("below", by="eve")
        at.nest(one, below)
        forge.depend(one, other, on=True)
        at.depend_elsewhere(one, "team/other", 7)
        assert [each.number for each in forge.blockers(one)] == [other, 7, below]
        forge.depend(one, other, on=False)
        words = forge.comment(one, "a remark").comment_id
        forge.edit_comment(words, "another remark")
        at.comment(one, "an update", by="renovate[bot]")
        at.edit(one, title="a title", by="eve")
        change = IssueChange("1", "text", False, ("bug",), ("P1",), ())
        changed = forge.change(one, change, ("ready", "P1"))
        assert changed is not None and changed.labels == ("ready", "bug")
        forge.change(one, IssueChange(is_open=True))
        forge.change(one, IssueChange(labels_off=("bug",), assignees=("fleet",)), ("ready", "bug"))
        forge.page = 2
        assert {each.number for each in forge.issues("")} == {one, other, below}
        assert forge.issues("2026-01-01T00:00:00Z") and forge.issue(one)
        thread = forge.thread(one)
        assert [each.author for each in thread.comments] == [LOGIN, "renovate[bot]"]
        assert {each.label for each in thread.label_events} == {"ready", "P1", "bug"}
        assert thread.renamed_at and thread.issue.edited_at
        forge.delete_comment(words)
        forge.delete_comment(words)
        rights = {each: forge.can_write(each) for each in ("alice", "eve", "renovate[bot]", "zoe")}
        assert rights == {"alice": True, "eve": False, "renovate[bot]": False, "zoe": False}
        for number in (one, other, below):
            at.edit(number, state="closed")

    def _fleet(self) -> None:
        at = self._here.at
        number = at.issue("of a fleet", "", "ready")
        for remark in range(101):
            at.comment(number, f"remark {remark}", by="alice")
        ours = source(self._here)
        assert taken(ours) == [key(number)]
        confirm = Settlement(Action.CONFIRM, key(number), by_agent=True)
        ask = Settlement(Action.ASK, key(number), "FOO or BAR?")
        assert settled(ours, confirm, ask) == [Result.APPLIED] * 2
        at.comment(number, "FOO", by="alice")
        ours.conversations([key(number)])
        again = Settlement(Action.REOPEN, key(number))
        assert settled(ours, again) == [Result.APPLIED]
        assert taken(ours) == [key(number)]
        close = Settlement(Action.CLOSE, key(number), "done")
        assert settled(ours, close) == [Result.APPLIED]

    def _errors(self) -> None:
        forge = self._forge()
        with pytest.raises(Gone):
            forge.thread(99)
        with pytest.raises(Gone):
            forge.issue(99)
        self._here.at.rights.pop(LOGIN)
        with pytest.raises(ForgeError):
            forge.login()
        self._here.at.rights[LOGIN] = "write"


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    return Conversation(GitHubTracker(tmp_path_factory.mktemp("conversation")))


def test_the_conversation_asks_everything_that_the_adapter_can(conversation: Conversation) -> None:
    assert {*calls_of(rest), *calls_of(github)} - conversation.lines == set()


def test_requests_and_answers_are_as_described(
    conversation: Conversation, description: Description
) -> None:
    rest_calls = [each for each in conversation.heard if each.path != "/graphql"]
    problems = {said for each in rest_calls for said in description.problems(each)}
    assert problems == set(), "\n".join(sorted(problems))
    assert {description.operation(each)[0] for each in rest_calls} == {
        "users/get-authenticated",
        "repos/get",
        "repos/get-collaborator-permission-level",
        "issues/list-for-repo",
        "issues/create",
        "issues/get",
        "issues/update",
        "issues/create-comment",
        "issues/update-comment",
        "issues/delete-comment",
        "issues/list-dependencies-blocked-by",
        "issues/add-blocked-by-dependency",
        "issues/remove-dependency-blocked-by",
        "issues/list-sub-issues",
    }


def test_queries_and_their_answers_fit_the_schema(
    conversation: Conversation, schema: GraphQLSchema
) -> None:
    assert validate(schema, parse(THREAD)) == []
    asked = [each for each in conversation.heard if each.path == "/graphql"]
    assert len(asked) > 5
    for each in asked:
        assert each.body["query"] == THREAD and each.status in (200, 401)
        if each.status == 200:
            assert graphql_problems(schema, each) == []


def graphql_problems(schema: GraphQLSchema, exchange: Exchange) -> list[str]:
    """Say what of an answer is not as the schema has it, by answering the query from it."""
    answer, asked = exchange.found, exchange.body
    again = graphql_sync(
        schema,
        asked["query"],
        root_value=answer["data"],
        variable_values=asked["variables"],
        # An answer names the types of those things alone of which the query asks for them.
        type_resolver=lambda found, info, kind: found.get("__typename", "User"),
    )
    problems = [each.message for each in again.errors or ()]
    if again.data != answer["data"]:
        problems.append("there is more or less in it than the query asks for")
    return problems


# --- what follows from the descriptions ----------------------------------------------------------


def test_the_id_of_a_comment_may_have_more_than_32_bits(tmp_path: Path) -> None:
    here = GitHubTracker(tmp_path)
    here.at.comment_ids_from = 3_000_000_000
    number = here.at.issue("one", "", "ready")
    said = here.at.comment(number, "a remark", by="alice")
    assert [each.comment_id for each in here.forge().thread(number).comments] == [said]
    ours = source(here)
    assert taken(ours) == [key(number)]
    assert settled(ours, Settlement(Action.CLOSE, key(number), "done")) == [Result.APPLIED]


def test_a_program_is_none_of_the_people_whose_name_it_has(tmp_path: Path) -> None:
    here = GitHubTracker(tmp_path)
    here.at.rights |= {"renovate": "write", "renovate[bot]": "read"}
    number = here.at.issue("an update", "", by="renovate[bot]")
    here.at.mark(number, "ready", by="renovate[bot]")
    thread = here.forge().thread(number)
    assert thread.issue.author == here.forge().issues("")[0].author == "renovate[bot]"
    assert [each.author for each in thread.label_events] == ["renovate[bot]"]
    assert taken(source(here, texts_from="labelled")) == []


def test_an_issue_of_another_repository_is_none_of_ours(tmp_path: Path) -> None:
    here = GitHubTracker(tmp_path)
    number = here.at.issue("one", "", "ready")
    here.at.depend_elsewhere(number, "team/other", 7)
    assert [each.place for each in here.forge().blockers(number)] == ["team/other"]
    assert taken(source(here)) == []


# --- the checks themselves -----------------------------------------------------------------------


def one_of(conversation: Conversation, method: str, pattern: str) -> Exchange:
    """An exchange that went well, as a copy."""
    for each in conversation.heard:
        if each.method == method and re.search(pattern, each.path) and each.status < 300:
            return Exchange(*json.loads(json.dumps(each)))
    raise LookupError(pattern)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": {"per_pages": "2"}}, "no parameter per_pages"),
        ({"query": {"sort": "number"}}, "'number' is not one of"),
        ({"query": {"page": "last"}}, "'last' is not of type 'integer'"),
        ({"path": "/repos/team/shop/issue"}, "no such operation"),
        ({"method": "PUT"}, "no such operation"),
        ({"body": {"state": "all"}}, "it takes no body"),
        ({"status": 202}, "no such answer"),
        ({"found": {}}, "{} is not of type 'array'"),
        ({"found": [{"number": 1}]}, "'title' is a required property"),
    ],
)
def test_a_wrong_exchange_is_found(
    conversation: Conversation, description: Description, change: Json, said: str
) -> None:
    listed = one_of(conversation, "GET", "/issues$")
    assert [*description.problems(listed)] == []
    problems = [*description.problems(listed._replace(**change))]
    assert any(said in each for each in problems), problems


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("is_bot", True, "'is_bot' was unexpected"),
        ("title", None, "None is not of type 'string'"),
        ("created_at", "yesterday", "'yesterday' is not a 'date-time'"),
        ("user", {"login": "eve"}, "is not valid under any"),
        ("state_reason", "done", "is not valid under any"),
    ],
)
def test_a_wrong_field_of_an_answer_is_found(
    conversation: Conversation, description: Description, field: str, value: Any, said: str
) -> None:
    read = one_of(conversation, "GET", r"/issues/\d+$")
    for field_kept in ("body", "closed_at", "user"):  # These may be null.
        assert [*description.problems(read._replace(found=read.found | {field_kept: None}))] == []
    problems = [*description.problems(read._replace(found=read.found | {field: value}))]
    assert any(said in each for each in problems), problems


@pytest.mark.parametrize("body", [{"text": "x"}, {"body": 3}, {}, None])
def test_a_wrong_body_of_a_request_is_found(
    conversation: Conversation, description: Description, body: Any
) -> None:
    said = one_of(conversation, "POST", "/comments$")
    assert [*description.problems(said)] == []
    assert [*description.problems(said._replace(body=body))]


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", "open"), ("title", None), ("number", "1"), ("author", {"login": None}), ("x", 1)],
)
def test_a_wrong_answer_to_a_query_is_found(
    conversation: Conversation, schema: GraphQLSchema, field: str, value: Any
) -> None:
    said = one_of(conversation, "POST", "/graphql$")
    assert graphql_problems(schema, said) == []
    said.found["data"]["repository"]["issue"][field] = value
    assert graphql_problems(schema, said)


@pytest.mark.parametrize(
    ("old", "new"), [("lastEditedAt", "editedAt"), ("LABELED_EVENT", "LABELLED"), ("Int!", "ID!")]
)
def test_a_wrong_query_is_found(schema: GraphQLSchema, old: str, new: str) -> None:
    assert validate(schema, parse(THREAD.replace(old, new)))
