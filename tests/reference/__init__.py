"""Slow, obvious implementations that the tests compare the library with."""
