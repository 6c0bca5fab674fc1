"""All figures by name, with what each is called for people, and the goal, where there is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tests.shape import figures, habits
from tests.shape.circles import circles
from tests.shape.figures import Source
from tests.shape.journey import Journey

Values = Mapping[str, int]

TITLES: dict[str, tuple[str, str]] = {
    "journey_functions": ("DONE to the next TASK: functions", "85"),
    "journey_files": ("DONE to the next TASK: files", "18"),
    "life_functions": ("one command issue, start to exit: functions", "1500"),
    "life_files": ("one command issue, start to exit: files", ""),
    "circles": ("import circles", "0"),
    "circle_modules": ("modules in them", "0"),
    "connection_fields": ("fields of Connection", "fewer"),
    "connection_booleans": ("booleans among them", "fewer"),
    "fates": ("files that decide what becomes of an attempt", "1"),
    "fate_lines": ("their lines", ""),
    "read_models": ("read models beside the reducer: files", "1"),
    "read_model_lines": ("their lines", "fewer"),
    "text_fields": ("texts of JSON in the journal's JSON: fields", "0"),
    "code_lines": ("product: lines not blank, comment, docstring", "69500"),
    "functions": ("product: functions", ""),
    "function_lines": ("product: mean lines of a function, in tenths", "120"),
    "long_functions": ("product: functions over 60 lines", "7"),
    "tiny_functions": ("product: private, one caller, two statements at most", "100"),
    "repacking_calls": ("product: calls that re-pack four or more fields", "12"),
    "paragraphs": ("product: classes that explain fields in a paragraph", "10"),
    "classes": ("product: classes", ""),
    "test_lines": ("tests: lines of Python", "113000"),
}
"""Figure -> title and goal."""


def counted(package: list[Source]) -> Values:
    """What is counted in the text."""
    found = circles(package)
    connection = figures.connection_fields(package)
    functions, classes = figures.definitions(package)
    return {
        "circles": len(found),
        "circle_modules": sum(map(len, found)),
        "connection_fields": len(connection),
        "connection_booleans": list(connection.values()).count("bool"),
        "fates": len({named.partition(":")[0] for named in figures.FATES}),
        "fate_lines": sum(figures.fate_lines(package).values()),
        "read_models": len(figures.READ_MODELS),
        "read_model_lines": sum(figures.read_model_lines(package).values()),
        "text_fields": len(figures.text_fields(package)),
        "code_lines": sum(map(figures.code_lines, package)),
        "functions": functions,
        "function_lines": habits.mean_lines(package),
        "long_functions": len(habits.long_functions(package)),
        "tiny_functions": len(habits.names_for_nothing(package)),
        "repacking_calls": len(habits.repacking(package)),
        "paragraphs": len(habits.paragraphs(package)),
        "classes": classes,
        "test_lines": figures.lines_of_tests(),
    }


def travelled(journey: Journey) -> Values:
    """From DONE to the next TASK."""
    return {"journey_functions": len(journey.functions), "journey_files": len(journey.files)}


def lived(functions: Collection[str]) -> Values:
    """From ``start`` to its exit: what is executed, as ``file:line:name``."""
    files = {name.partition(":")[0] for name in functions}
    return {"life_functions": len(functions), "life_files": len(files)}
