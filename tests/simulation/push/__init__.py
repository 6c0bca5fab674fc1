"""Worlds with a push source: three kinds of them, and what befalls them.

``rrq``: the real source and its requests, which live in memory and are answered on their
connection. ``spool``: a model of a source that acknowledges what it has on its disk, as
dispatcherd's may be. ``queue``: a model of a queue on another machine with a list of what is being
processed, as Hero's.

What must hold, whatever goes wrong: nothing that was acknowledged is lost; each arrival gets one
terminal answer; it is never run twice at once, and not once it was answered.
"""
