"""Executors of the RRQ protocol as processes of ours, and the driver that keeps them busy."""
