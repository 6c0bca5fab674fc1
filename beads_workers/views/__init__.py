"""What files tell of an attempt, for ``logs``, the dashboard and the live page. Reads only."""
