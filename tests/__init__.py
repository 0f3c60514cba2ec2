"""The test suite; tests.reference holds the slow, obvious versions."""
