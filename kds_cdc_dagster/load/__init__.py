"""From a sealed batch to curated tables and exports."""
