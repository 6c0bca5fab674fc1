"""Worlds in which attempts run on other machines, that are cut off, sleep and are started anew."""
