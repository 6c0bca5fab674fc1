"""How test runners, compilers and linters tell of what failed: one table, read by ``failures``.

To add a runner, add a row, and its recorded outputs to ``tests/core/runner_outputs.tar.xz``. The
first row that matches a line has it; complaints of compilers and linters come last.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runner:
    """How a program tells of what failed.

    Patterns match lines without colours, from their start. Groups: ``name`` and ``file`` of the
    failing item, ``says`` for its message.
    """

    # The line that names a failing item.
    item: str
    # What of its later lines is its message; else each whole line.
    says: str = ""
    # Later lines that say nothing: stack frames, code, hints.
    drop: str = ""
    # The line with which the item is over; without one it has no later lines.
    ends: str = ""
    # A line whose ``file`` holds for the items after it.
    heading: str = ""
    # A line whose ``file`` holds for the items before it.
    footing: str = ""
    # A later line of the item with its ``file``.
    place: str = ""
    # Lines that continue the name, until one ends with a colon.
    joins: str = ""
    # Lines before the item that are its message.
    before: str = ""
    # A later line that begins to tell more of an item that was named already, by the same name.
    recalled: str = ""
    # Names that only say that an item below has failed.
    passes_over: str = ""
    # How many lines are shown.
    lines: int = 3
    # Lines that are shown first, if there are any; of several the last.
    prefers: str = ""
    # It tells more about an item that another line names.
    is_detail: bool = False
    # It is an item only with a file.
    needs_file: bool = False
    # It tells what a program complains of, which counts only if no test has failed.
    is_complaint: bool = False


_FRAME = r"\s*at |\s*❯ |\s*(?:>\s*)?\d*\s*[|│](?: |$)|\s*\^+\s*$|\s*\{$"
"""Stack frames of JavaScript, and pictures of code."""
_ERROR = r"[\w.]*(?:Error|Exception|Failed|Failure|Exit|Interrupt)\b"

RUNNERS = (
    # pytest: the summary at the end, and the sections before it
    Runner(r"(?:FAILED|ERROR) (?P<name>\S+\.py(?:::.+?)?)(?: - (?P<says>.+))?$", lines=1),
    Runner(
        r"_{3,} (?:ERROR at \w+ of |ERROR collecting )?(?P<name>\S.*?) _{3,}$",
        says=r"E   +(?P<says>\S.*)",
        ends=r"={5,}",
        place=r"(?P<file>\S+\.py):\d+: ",
        prefers=_ERROR,
        lines=1,
        is_detail=True,
    ),
    # unittest
    Runner(
        r"(?:FAIL|ERROR): (?P<name>[\w.]+ \([\w.]+\)(?: [\[(].*)?)$",
        says=r"(?P<says>[A-Za-z_][\w.]*(?:: .*)?)$",
        ends=r"={5,}$|Ran \d+ test",
        prefers=_ERROR,
        lines=1,
    ),
    # go test; with -v the message comes first
    Runner(
        r"\s*--- FAIL: (?P<name>\S+) \([\d.]+s\)$",
        drop=r"\s+--- |\s+running tests",
        ends=r"FAIL|ok|---|===|PASS|\?|goroutine |exit status",
        footing=r"FAIL\s+(?P<file>\S+)",
    ),
    Runner(
        r"=== (?:RUN|CONT|NAME) +(?P<name>\S+)$",
        says=r"\s+(?P<says>\S.*)",
        ends=r"\s*(?:---|===)",
        is_detail=True,
    ),
    # cargo test, cargo nextest
    Runner(
        r"test (?P<name>\S.*?)(?: - should panic)? \.\.\. FAILED$",
        heading=r"\s+Running (?:unittests )?(?P<file>\S+) \(",
    ),
    Runner(
        r"---- (?P<name>.+?) stdout ----$",
        drop=r"thread '.*panicked at .*:$|note: |stack backtrace|\s+\d+: |\s+at ",
        ends=r"failures:$|----|test result",
        prefers=r"Error: |assertion ",
        is_detail=True,
    ),
    Runner(
        r"\s+(?:FAIL|TIMEOUT|SIGABRT) \[ *[\d.]+s\](?: \([^)]*\))? (?P<name>\S+ .+)$",
        says=r"\s*(?P<says>\S.*)",
        drop=r"\s*(?:std(?:out|err) ─|running \d|test |failures:|thread '|note: |$)|\s{8}\w+$",
        ends=r"\s+(?:PASS|FAIL|Summary) |─{4,}|error: ",
        prefers=r"Error: |assertion ",
    ),
    # bats
    Runner(
        r"not ok \d+ (?P<name>(?!- ).+?)(?: in \d+ms)?(?: # .*)?$",
        says=r"# (?P<says>[^\s(].*)",
        ends=r"(?!#)",
        place=r"#\s+\(?.*in test file (?P<file>\S+),",
    ),
    Runner(
        r"(?:.*\d+/\d+)? ✗ (?P<name>.+?)(?: \[\d+\])?$",
        says=r"   (?P<says>[^\s(].*)",
        ends=r"(?!   )|.*\d+/\d+ ✓",
        place=r"   \s*\(?.*in test file (?P<file>\S+),",
    ),
    # TAP: node --test, node-tap, ava --tap
    Runner(
        r"\s*not ok \d+ (?:- )?(?P<name>.+?)(?: # time=.*)?$",
        says=r"\s*(?:(?:error|message): ?)?(?:\|-?|>-?|['\"])?(?P<says>[^'\"|\s].*?)['\"]?$",
        drop=r"\s*(?:---|#|(?:duration_ms|location|type|failureType|exitCode|signal|at|fileName"
        r"|lineNumber|columnNumber|isToplevel|stdio|cwd|externalID|command|compare|typeName|diff):"
        r"|(?:error|message): [|>]-?$)",
        ends=r"\s*(?:\.\.\.|(?:code|stack|name|source|args):|not ok|ok )",
        place=r"\s*(?:location: '(?P<file>.+?):\d+:\d+'|fileName: (?P<named>.+))$",
        passes_over=r"\d+ subtests? failed",
    ),
    # node --test with its other reporter
    Runner(
        r"\s*✖ (?P<name>.+?) \([\d.]+ms\)$",
        drop=_FRAME,
        ends=r"\s*[✔✖ℹ▶]|test at |\s+(?:generatedMessage|code):",
        heading=r"test at (?P<file>.+?):\d+:\d+$",
        passes_over=r"\d+ subtests? failed",
    ),
    # playwright
    Runner(
        r"\s+\d+\) (?:\[[\w -]+\] › )?(?P<file>\S+?):\d+:\d+ › (?P<name>.+?) ─*$",
        drop=_FRAME + r"|\s+Error Context|\s+attachment |\s+─+$|\s+Retry #",
        ends=r"\s+\d+ (?:failed|passed|flaky)",
    ),
    # minitest
    Runner(
        r"(?P<name>\w+(?:::\w+)*#test_\S+) \[(?P<file>[^:\]]+):\d+\]:$",
        ends=r"\s*$|\s+\d+\) ",
    ),
    Runner(
        r"(?P<name>\w+(?:::\w+)*#test_\S+):$",
        drop=r"\s+\S+:\d+:in ",
        ends=r"\s*$|\s+\d+\) ",
        place=r"\s+(?P<file>\S+):\d+:in ",
    ),
    # phpunit
    Runner(
        r"\d+\) (?P<name>[\w\\]+::\S+.*)$",
        drop=r"\S+\.php:\d+$",
        ends=r"\d+\) |--$|FAILURES|ERRORS",
    ),
    Runner(
        r" ✘ (?P<name>\S.+?)(?: \[[\d.]+ ms\])?$",
        heading=r"(?P<file>[A-Z]\w+(?: \[\S+\])?)$",
        says=r"\s+│ (?P<says>(?!\S+\.php:)\S.*)",
        ends=r"(?!\s+│)",
    ),
    # mocha; rspec, whose summary at the end has the files
    Runner(
        r"  \d+\) (?P<name>(?!Failure:|Error:|\[).+)$",
        joins=r"\s{7,}(?P<name>\S.*)",
        drop=_FRAME + r"|\s+Failure/Error|\s+# |\s+\(compared using|\s+[+-] (?:expected|actual)",
        ends=r"  \d+\) |Finished in |rspec |Failed examples|  [✔✓]|\s+\d+ (?:passing|failing)",
        place=r".*[ (](?:file://)?(?P<file>/?[^\s:()]+\.(?:test|spec)\.\w+|/?[^\s:()]*tests?/[^\s:()]+)[:)]",
        lines=2,
    ),
    Runner(r"rspec (?P<file>\S+?)(?::\d+|\[[\d:]+\]) # (?P<name>.+)$"),
    # jest
    Runner(
        r"\s+● (?P<name>\S.*)$",
        drop=_FRAME
        + r"|\s+Jest |\s+By default|\s+Out of the box|\s+Here's what|\s+•|\s+You'll|\s+htt"
        r"|\s+Details:|\s+For info",
        ends=r"Test Suites:|FAIL |PASS |Snapshots:",
        heading=r"\s*FAIL +(?:\S+ )?(?P<file>\S+\.\w+)(?: \([\d.]+ m?s\))?$",
        prefers=_ERROR,
    ),
    # vitest
    Runner(
        r"\s*FAIL  (?:\|?[\w-]+\|? )?(?P<name>\S+\.\w+ (?:> .+|\[ .+ \]))$",
        drop=_FRAME + r"|[-+] (?:Expected|Received)$|\s+Plugin:|\s+File:",
        ends=r"⎯{5,}",
    ),
    # ava: a list, and sections that begin with the name alone
    Runner(
        r"\s+✘ \[fail\]: (?P<name>.+?)(?: Error thrown in test)?$",
        recalled=r"  (?P<name>\S.*)$",
        drop=r"\s+\d+: |\s+at |\s+\S+\.\w+:\d+$|\s+Difference |\s+› |\s+Error thrown"
        r"|\s+Error \{|\s+\}|\s+(?:message|name|code): ",
        ends=r"  ─",
        place=r"\s+(?P<file>\S+\.\w+):\d+$",
        prefers=r"\w*Error: ",
    ),
    # bun, deno
    Runner(
        r"(?:\(fail\)|✗) (?P<name>.+?)(?: \[[\d.]+m?s\])?$",
        heading=r"(?P<file>\S+\.\w+):$",
        before=r"(?:(?<!\S)error: (?P<says>.+)|(?P<more>(?:Expected|Received): .*))$",
        says=r"\s+\^ (?P<says>this test .+)",
        ends=r"\S|\s*\d+ \|",
    ),
    Runner(
        r"(?P<name>.+?) => (?P<file>\S+):\d+:\d+$",
        drop=_FRAME,
        ends=r" FAILURES|FAILED \||\s+at |  \S",
    ),
    # surefire, gradle
    Runner(
        r"\[ERROR\] (?P<name>[\w.$]+\.[\w.$]+(?:\(.*\))?(?:\[.*\])?) +(?:-- )?Time elapsed: .* <<<",
        drop=r"\tat ",
        ends=r"\s*$|\[",
        lines=1,
    ),
    Runner(
        r"(?P<name>[\w.$]+ > .+?) FAILED$",
        drop=r"\s+at |\s+Caused by",
        ends=r"\s*$",
        lines=1,
    ),
    # dotnet
    Runner(
        r"\s+Failed (?P<name>[\w.]+(?:\(.*\))?) \[.*\]$",
        drop=r"\s+(?:Error Message|Stack Trace):|\s+at ",
        ends=r"\s+Stack Trace|\s+(?:Passed|Failed|Skipped) |\S",
    ),
    # ctest, meson
    Runner(
        r"\s*\d+/\d+ Test +#\d+: (?P<name>.+?) \.+.*\*\*\*",
        ends=r"\s*$|\s+Start |\s*\d+/\d+ ",
    ),
    Runner(r"\s+\d+ - (?P<name>\S.*?) +\((?P<says>.+)\)$", is_detail=True),
    Runner(
        r"\s*\d+/\d+ (?P<name>\S.*?)\s+(?P<says>(?:FAIL|TIMEOUT|ERROR)\b.*)$",
        drop=r">>> |―|std(?:err|out):$",
        ends=r"\s*\d+/\d+ |Ok: |Summary",
        prefers=r"(?!FAIL|TIMEOUT|ERROR)",
        lines=1,
    ),
    # a line of one's own: "FAIL: name: message", "not ok name"
    Runner(r"FAIL: (?P<name>[^:(]+): (?P<says>.+)$", lines=1),
    # compilers and linters: a file, and what is wrong there
    Runner(
        r"\s*(?P<file>(?:[A-Za-z]:)?[^\s:()'\"]+\.\w+)[:(]\d+(?:[:,]\d+)?\)?:? (?:- )?"
        r"(?P<says>(?:fatal )?error\b.*)$",
        lines=1,
        is_complaint=True,
    ),
    Runner(
        r"(?:vet: )?(?P<file>\S+\.(?:go|pyi?|sh|bash)):\d+:\d+: (?P<says>.+)$",
        lines=1,
        is_complaint=True,
    ),
    Runner(
        r"(?P<says>error(?:\[\w+\])?: .+|[A-Z]{1,4}\d{3,4} .+|unformatted: .+|invalid-syntax: .+)$",
        place=r"\s*--> (?P<file>[^:]+):\d+",
        ends=r"\s*$",
        drop=r"",
        lines=1,
        needs_file=True,
        is_complaint=True,
    ),
    Runner(
        r"\s+\d+:\d+\s+error\s+(?P<says>\S.*)$",
        heading=r"(?P<file>/?\S+\.\w+)$",
        lines=1,
        needs_file=True,
        is_complaint=True,
    ),
    Runner(
        r"(?P<file>\S+\.\w+)(?::\d+:\d+)? (?:lint|format|parse|assist)\S* ",
        says=r"\s+[×✖] (?P<says>.+)",
        ends=r"\s+\d+ │|\s*[ℹ]",
        is_complaint=True,
    ),
    Runner(
        r"\[(?:error|warn)\] (?P<file>\S+\.\w+)(?::? (?P<says>.*))?$",
        is_complaint=True,
    ),
    Runner(
        r"\[ERROR\] (?P<file>\S+\.\w+):\[\d+,\d+\] (?P<says>.+)$",
        lines=1,
        is_complaint=True,
    ),
    Runner(
        r"In (?P<file>\S+) line \d+:$",
        says=r"\s*\^-+\^? (?P<says>SC\d+.*)",
        ends=r"In |For more",
        lines=1,
        is_complaint=True,
    ),
)
