"""From a received message to a sealed batch: performs what the core decides, through ports."""
