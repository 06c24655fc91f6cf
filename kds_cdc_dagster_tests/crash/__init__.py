"""Real processes killed at every step."""
