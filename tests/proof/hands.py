"""Who had which issue when: what the commands of tasks wrote down, and what it must not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SCRIPT = """\
# Waits for the gate, and takes a second to end when it is told to. What begins first of an issue
# whose number ends in 3 or 7 fails, once.
exec 2>/dev/null
trap 'sleep 1; exit 1' TERM
here=$HANDS/$BW_ISSUE_ID
said() { echo "$1 $BW_ISSUE_ID $(date +%s.%N) $$ $2" >>"$HANDS/log"; }
beside=
for pid in $(cat "$here"); do
  read -r _ _ state _ <"/proc/$pid/stat" && [ "$state" != Z ] && beside="$beside $pid"
done
echo $$ >>"$here"
read -r _ _ _ _ _ session _ <"/proc/$$/stat"
said begin "${HAND:-$session}$beside"
while [ -d "$HANDS" ] && ! [ -e "$HANDS/gate" ]; do sleep 0.2; done
sleep 0.1
case $BW_ISSUE_ID in *[37]) mkdir "$here.failed" && said fail && exit 1;; esac
said end
"""
"""A task: its begin, with the processes that are at its issue already, and its end."""


@dataclass(slots=True)
class Hand:
    """One run of an issue's command. Times are epoch seconds; ``ended`` is 0 where it was ended."""

    issue_id: str
    began: float
    pid: int
    worker: str
    """The mark of a worker of somebody else; of ours the pid, which is that of its session."""
    beside: frozenset[int] = frozenset()
    """Those that lived when it began."""
    ended: float = 0.0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """A journal's word of a worker that is gone from us and may live. ``at``: epoch seconds."""

    issue_id: str
    at: float
    told_to_stop: bool = False


@dataclass(slots=True)
class Log:
    """What has been written down so far."""

    hands: list[Hand] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Log:
        """From the lines of ``SCRIPT``."""
        log = cls()
        for line in text.splitlines():
            word, issue_id, at, pid, *more = line.split()
            if word == "begin":
                worker, *beside = more
                hand = Hand(issue_id, float(at), int(pid), worker, frozenset(map(int, beside)))
                log.hands.append(hand)
                continue
            (hand,) = [h for h in log.hands if h.pid == int(pid) and h.issue_id == issue_id]
            hand.ended, hand.failed = float(at), word == "fail"
        return log

    def of(self, issue_id: str) -> list[Hand]:
        """In the order in which they began."""
        return [hand for hand in self.hands if hand.issue_id == issue_id]

    def done(self) -> Counter[str]:
        """How often each came to a good end."""
        return Counter(hand.issue_id for hand in self.hands if hand.ended and not hand.failed)

    def overlaps(self) -> Iterator[tuple[Hand, Hand]]:
        """Two at one issue: the first was there when the second began."""
        for place, second in enumerate(self.hands):
            for first in self.hands[:place]:
                if first.issue_id == second.issue_id and (
                    first.pid in second.beside or first.ended > second.began
                ):
                    yield first, second


def too_early(
    log: Log, losses: Sequence[Loss], strangers: Collection[str], grace: float | None
) -> list[tuple[Hand, str]]:
    """Each that had its issue while another one got it, though no grace was over.

    ``strangers``: marks of workers that are not ours; ``grace``: in seconds, None for never.
    """
    found = []
    for first, second in log.overlaps():
        lost = [
            loss.at
            for loss in losses
            if loss.issue_id == first.issue_id
            and first.began <= loss.at <= second.began
            and not loss.told_to_stop
        ]
        if grace is None or first.worker not in strangers or not lost:
            found.append((first, f"{first.issue_id} was in two hands"))
        elif (waited := second.began - min(lost)) < grace:
            found.append((first, f"{first.issue_id} was in two hands after {waited:.1f} s"))
    return found


def not_once(log: Log, statuses: Mapping[str, str]) -> list[str]:
    """Issues that are not done and closed once, or did not fail as often as they are told to."""
    done, failed = log.done(), Counter(hand.issue_id for hand in log.hands if hand.failed)
    found = [f"{i} is {status}" for i, status in statuses.items() if status != "closed"]
    found += [f"{i} was done {done[i]} times" for i in statuses if done[i] != 1]
    found += [f"{i} failed {failed[i]} times" for i in statuses if failed[i] != (i[-1] in "37")]
    return found


def out_of_order(log: Log, blockers: Mapping[str, Sequence[str]]) -> list[str]:
    """Issues that were begun before what they wait for was done."""
    done = {hand.issue_id: hand.ended for hand in log.hands if hand.ended and not hand.failed}
    return [
        f"{hand.issue_id} was begun before {blocker} was done"
        for hand in log.hands
        for blocker in blockers[hand.issue_id]
        if not 0 < done.get(blocker, 0.0) <= hand.began
    ]
