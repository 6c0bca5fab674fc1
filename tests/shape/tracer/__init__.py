"""A folder for ``PYTHONPATH``: ``sitecustomize`` in it is imported by every Python at its start."""
