"""The demo's bench-top world: procedures, how they look, and the best possible scores."""
