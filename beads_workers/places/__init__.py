"""Attempts on other machines: engines that reach them, and what runs there.

- ``guard`` holds an attempt on a host for as long as its lease lasts; ``host`` is the attempt.
- ``away`` is the attempt's program at home. It waits for the host, and brings the work back.
- ``line`` is one process at home for each place: the only one that speaks to its hosts.
- ``parcel`` makes what is sent: the package, commits, files.
- ``ssh``, ``slurm``, ``ray``: an engine each, a row of ``registry.PLACES``.
"""
