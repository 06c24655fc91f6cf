"""Publishing: captured change events, and simulated kitchens with an oracle."""
