"""``chaos``: a throw-away tracker, a fleet, and a hand that kills whatever it meets."""
