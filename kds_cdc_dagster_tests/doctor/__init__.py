"""The doctor against real faults."""
