"""Figures for a monitoring system: counted (``counters``), gathered (``figures``), written
(``exposition``). Source: docs/METRICS.md.
"""
