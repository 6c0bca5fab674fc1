"""The Hero dispatcher's protocol over Redis: names of keys, and the hash of a job; no I/O.

``keys`` says what everything is called, ``jobs`` what a job is and which states it may go to,
``reading`` makes one of a Redis hash, and ``writing`` the fields of a hash.

Source: docs/PROTOCOL.md, "Hero over Redis".
"""

from beads_workers.protocols.hero.jobs import HeroJob, Status, may_become
from beads_workers.protocols.hero.keys import Keys, keys_of
from beads_workers.protocols.hero.reading import WrongField, read_job
from beads_workers.protocols.hero.writing import ended_fields, status_fields, write_job

__all__ = [
    "HeroJob",
    "Keys",
    "Status",
    "WrongField",
    "ended_fields",
    "keys_of",
    "may_become",
    "read_job",
    "status_fields",
    "write_job",
]
