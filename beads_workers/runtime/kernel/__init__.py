"""The one room that asks the system: of processes, sockets, descriptors, folders and the machine.

Everybody else asks ``system``, and names none.
"""

import sys

if sys.platform == "darwin":
    from beads_workers.runtime.kernel import darwin as system
else:
    from beads_workers.runtime.kernel import linux as system

__all__ = ["system"]
