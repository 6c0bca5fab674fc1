"""The other end of Hero's queues: who hands jobs in, waits for them, and stops them."""
