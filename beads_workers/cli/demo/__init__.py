"""``demo``: its backlog, what it says about its run, and what it checks at the end."""
