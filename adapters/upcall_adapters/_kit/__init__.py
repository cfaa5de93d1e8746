"""What adapters share: how certain an error is, and the checks that each must pass."""
