"""Hero's queues in a Redis as a source, and what it shares with those who fill them."""
