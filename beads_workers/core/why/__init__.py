"""Why an issue does not run: what the scheduler and the tracker know, put into words.

``facts`` is what the scheduler says, gathered from its parts by ``gathering``; ``reasons`` has the
words for it, ``waiting`` and ``filtered`` those for what the tracker shows, and ``explaining`` puts
all of it in order for one issue, ``overview`` for a whole backlog.
"""
