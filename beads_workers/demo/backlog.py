"""The backlog of ``demo``: the issues of a small web shop, and what goes wrong with them.

Each issue's task is a small ``sh`` script that anybody can read. The tasks wait and print a few
lines, and most of them succeed; failures come from the scripts, the same in every run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

PREFIX = "shop"
WORKERS = 8
RETRY_DELAY_SECONDS = 2.0
TERM_GRACE_SECONDS = 1.0
TIMEOUT_SECONDS = 3.0
"""Timeout of the one issue that has a limit of its own."""
FOR_EVER_SECONDS = 20
"""Duration of a task that is to be killed: it ends by itself if nobody kills it."""


class ItemFate(Enum):
    """Fate of an issue."""

    FINE = "closed at the first attempt"
    FLAKY = "fails once"
    BUSY = "asks once for a retry that charges nothing (exit 75)"
    KILLED = "its first worker is killed with kill -9"
    STUCK = "outlives its timeout once, and ignores TERM"
    HOPELESS = "fails every time"


@dataclass(frozen=True, slots=True)
class Item:
    """One issue."""

    number: int
    title: str
    priority: int
    seconds: float
    # Numbers of issues that must be closed first.
    needs: tuple[int, ...]
    # Lines of its log, spread over ``seconds``.
    says: tuple[str, ...]
    fate: ItemFate = ItemFate.FINE
    # Last line of an attempt that fails, after ``trouble_seconds``.
    trouble: str = ""
    trouble_seconds: float = 0.0

    @property
    def issue_id(self) -> str:
        """Id of the issue in the tracker."""
        return f"{PREFIX}-{self.number}"


# fmt: off
BACKLOG: tuple[Item, ...] = (
    # Ready from the start.
    Item(1, "Charge only once when Pay is pressed twice", 0, 5.6, (),
         ("src/payment.py: one key per order", "31 tests passed")),
    Item(2, "Fix the flaky checkout test", 0, 4.0, (),
         ("tests/test_checkout.py: 40 runs", "40 of 40 passed"),
         ItemFate.FLAKY, "AssertionError: 3 items in the basket, 2 on the invoice", 7.2),
    Item(3, "Close the hole in the password reset", 0, 6.4, (),
         ("a token is good for one use now", "12 tests passed")),
    Item(4, "Write a migration that adds order numbers", 1, 4.4, (),
         ("migrations/0042_order_number.sql", "applied to an empty database")),
    Item(5, "Collect searches that find nothing", 1, 3.8, (),
         ("1,204 searches last week", "report written")),
    Item(6, "Show a basket that was left behind", 1, 7.2, (),
         ("baskets live for 30 days", "8 tests passed")),
    Item(7, "Make the product page load faster", 1, 6.6, (),
         ("pictures load when they are seen", "1.9 s before, 0.7 s now")),
    Item(8, "Translate the checkout into French", 2, 5.2, (),
         ("118 texts", "no placeholder is missing")),
    Item(9, "Remove the old discount code", 2, 3.4, (),
         ("src/discounts.py: 310 lines less", "57 tests passed")),
    Item(10, "Write down how a release is made", 3, 6.2, (),
         ("docs/release.md", "links checked")),
    Item(11, "Sort reviews by date", 3, 3.6, (),
         ("src/reviews.py", "9 tests passed")),
    Item(12, "Clean up the translations nobody uses", 4, 5.2, (),
         ("43 texts removed",)),
    Item(13, "Try a darker green for the buttons", 4, 4.4, (),
         ("contrast 5.1 to 1",)),
    # Order numbers, one after the other.
    Item(14, "Try the migration on a copy of the database", 1, 3.2, (4,),
         ("2,310,004 orders", "applied in 41 s, rolled back in 3 s"),
         ItemFate.BUSY, "the copy is locked by the nightly backup, try again later", 6.2),
    Item(15, "Give order numbers out in the API", 1, 4.2, (14,),
         ("GET /orders/{number}", "22 tests passed")),
    Item(16, "Show order numbers in the order history", 2, 3.8, (15,),
         ("templates/orders.html", "screenshots compared")),
    Item(17, "Find an order by its number", 2, 3.4, (15,),
         ("src/search.py", "14 tests passed")),
    Item(18, "Print order numbers on invoices", 2, 5.2, (16,),
         ("invoice.pdf: 2 pages", "14 tests passed")),
    # The search.
    Item(19, "Find products by their variants, too", 1, 6.6, (5,),
         ("size and colour are indexed", "19 tests passed")),
    Item(20, "Rebuild the search index", 1, 3.2, (19,),
         ("80,412 products", "index written, 61 MB"), ItemFate.KILLED),
    Item(21, "Forgive a typing error in searches", 2, 5.0, (20,),
         ("distance 1 for words of 5 letters", "33 tests passed")),
    Item(22, "Suggest what others searched for", 3, 4.8, (20,),
         ("top 1,000 searches", "7 tests passed")),
    Item(23, "Measure how often a search succeeds", 3, 4.0, (21,),
         ("94.1 % before, 97.8 % now",)),
    # Suppliers and stock.
    Item(24, "Read the supplier's new price format", 2, 5.8, (1,),
         ("4 columns are new", "6 tests passed")),
    Item(25, "Book stock when an order is paid", 2, 5.4, (3,),
         ("src/stock.py", "28 tests passed")),
    Item(26, "Tell customers when something is back in stock", 3, 5.2, (25,),
         ("mail template in 3 languages", "4 tests passed")),
    Item(27, "Count the stock of both warehouses", 2, 4.6, (25,),
         ("warehouse 2 has its own shelf", "28 tests passed"),
         ItemFate.FLAKY, "TimeoutError: warehouse 2 did not answer within 1 s", 2.4),
    Item(28, "Import the supplier's price list", 1, 1.4, (24, 27),
         ("connecting to prices.example", "6,020 prices read"), ItemFate.STUCK),
    Item(29, "Warn when a price doubles over night", 2, 3.6, (28,),
         ("3 prices to look at", "5 tests passed")),
    # Payment.
    Item(30, "Accept payment by bank transfer", 1, 3.2, (2,),
         ("src/payment/transfer.py", "17 tests passed")),
    Item(31, "Renew the key of the payment sandbox", 2, 1.0, (30,),
         ("asking pay.example for a new key",),
         ItemFate.HOPELESS, "pay.example: 401 Unauthorized", 1.2),
    Item(32, "Pay back a part of an order", 2, 4.8, (30,),
         ("src/payment/refund.py", "21 tests passed")),
    Item(33, "Send a receipt for a refund", 3, 4.6, (32,),
         ("mail template in 3 languages", "3 tests passed")),
    # Around it.
    Item(34, "Translate the checkout into Polish", 2, 5.4, (8,),
         ("118 texts", "no placeholder is missing")),
    Item(35, "Translate the checkout into Greek", 3, 4.8, (8,),
         ("118 texts", "no placeholder is missing")),
    Item(36, "Cut the size of the start page in half", 2, 6.2, (7,),
         ("412 kB before, 198 kB now", "screenshots compared")),
    Item(37, "Load fonts without a jump of the text", 3, 5.0, (36,),
         ("layout shift 0.00",)),
    Item(38, "Let people order without an account", 1, 5.6, (3, 30),
         ("src/checkout/guest.py", "44 tests passed")),
    Item(39, "Remind of a basket after three days", 3, 4.4, (38,),
         ("one mail, never two", "6 tests passed"),
         ItemFate.FLAKY, "KeyError: 'unsubscribed'", 1.8),
    Item(40, "Measure where people leave the checkout", 2, 5.6, (38,),
         ("5 steps", "dashboards/checkout.json")),
    # The release waits for all of them, and everything else waits for nothing more.
    Item(41, "Run the load test against the new checkout", 1, 6.0, (32, 38),
         ("400 orders a minute", "95 % under 210 ms")),
    Item(42, "Test the whole shop in three browsers", 0, 4.6,
         (18, 17, 21, 22, 29, 27, 37, 41),
         ("126 scenarios", "126 passed")),
    Item(43, "Write the release notes", 1, 3.0, (18, 21, 29, 27, 33, 34, 35, 41),
         ("CHANGELOG.md: 39 entries",)),
    Item(44, "Release version 2.4", 0, 3.4, (42, 43),
         ("tag v2.4 signed", "rolled out to 3 of 3 servers")),
)
# fmt: on

RELEASE = BACKLOG[-1]


def of_fate(fate: ItemFate) -> tuple[Item, ...]:
    """Return the issues with this fate, in order."""
    return tuple(item for item in BACKLOG if item.fate is fate)


def issue_lines() -> Iterator[bytes]:
    """Yield the backlog as beads' JSON Lines, for an import."""
    for item in BACKLOG:
        fields: dict[str, object] = {
            "id": item.issue_id,
            "title": item.title,
            "priority": item.priority,
            "issue_type": "task",
            "dependencies": [{"depends_on_id": f"{PREFIX}-{each}"} for each in item.needs],
        }
        if item.fate is ItemFate.STUCK:
            fields["timeout_seconds"] = TIMEOUT_SECONDS
        yield json.dumps(fields).encode("ascii")


def script(item: Item) -> str:
    """Return the task of an issue, for ``sh``."""
    first, *rest = map(shlex.quote, item.says)
    pause = f"sleep {item.seconds / max(1, len(rest)):.1f}"
    lines = [f"# {item.issue_id}: {item.title}", f"echo {first}", *_what_goes_wrong(item), pause]
    lines += f"\n{pause}\n".join(f"echo {text}" for text in rest).splitlines()
    return "\n".join(lines) + "\n"


def _what_goes_wrong(item: Item) -> list[str]:
    trouble = f"sleep {item.trouble_seconds}; echo {shlex.quote(item.trouble)}"
    at_first = 'if [ "$BW_ATTEMPT" = 1 ]; then'
    match item.fate:
        case ItemFate.FINE:
            return []
        case ItemFate.FLAKY:
            return [f"{at_first} {trouble}; exit 1; fi"]
        case ItemFate.HOPELESS:
            return [f"{trouble}; exit 1"]
        case ItemFate.BUSY:  # A free retry has the same attempt number.
            return [f"if mkdir work/{item.issue_id}.asked 2>/dev/null; then {trouble}; exit 75; fi"]
        case ItemFate.STUCK:
            return [f"{at_first} trap '' TERM; sleep {FOR_EVER_SECONDS}; fi"]
        case ItemFate.KILLED:  # The task waits until its worker is killed.
            return [f"{at_first} sleep {FOR_EVER_SECONDS}; fi"]
