"""What ``doctor`` looks at, one module for each part of the world; nothing is changed."""
