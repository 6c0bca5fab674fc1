"""Bad frames by the million at both ends of RRQ's protocol, over real sockets.

``executor_end`` sends them to our ``rrq-executor``, a whole fleet; ``driver_end`` answers the lines
of our driver with them. What must hold: the process lives and serves whoever asks properly, its
memory and its descriptors stay bounded, and every bad connection is ended.
"""
