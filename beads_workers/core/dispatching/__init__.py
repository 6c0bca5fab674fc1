"""dispatcherd's control commands, answered for any fleet: pure, from what the scheduler and the
board know.

``tasks`` finds what a filter means and takes it away where that is asked, ``answers`` has the
shapes of the answers. What has no meaning for a fleet is well-formed and empty. Source:
docs/DISPATCHERD.md, "The control plane".
"""
