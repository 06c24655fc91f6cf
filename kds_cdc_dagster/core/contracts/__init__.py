"""Envelope contracts: which body means what."""
