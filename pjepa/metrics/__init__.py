"""How good a prediction is, and how sure one can be of it."""
