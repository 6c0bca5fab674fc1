"""What is written down: the journal, receipts, and the state of issues that follows from it."""
