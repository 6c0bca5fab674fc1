"""A kind of source whose own import fails: a broken installation, not a missing kind."""

import no_such_module

KIND = no_such_module
