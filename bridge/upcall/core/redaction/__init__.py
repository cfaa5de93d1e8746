"""How credentials are found: one module for each way in which they give themselves away."""
