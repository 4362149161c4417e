"""Tests of the pure ordering core."""
