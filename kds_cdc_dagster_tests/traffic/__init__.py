"""Tests of publishing and simulated traffic."""
