"""What is claimed, handed out, retried and landed, and when."""
