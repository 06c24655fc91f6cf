"""Kitchen display change events: from a FIFO queue to curated tables and exports, in order, once."""
