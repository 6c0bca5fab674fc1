"""Puts so many jobs into the queue of the real RRQ 0.9.8, in whose environment this runs."""

from __future__ import annotations

import asyncio
import sys

from rrq.client import RRQClient
from rrq.settings import RRQSettings


async def main(url: str, jobs: int, name: str) -> None:
    """Enqueue them, one after the other."""
    client = RRQClient(settings=RRQSettings(redis_dsn=url))
    for number in range(jobs):
        await client.enqueue(name, number=number)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *(sys.argv[3:] or ["stamp"])))
