"""The demo's bench-top world: procedures, how they look, and what could be known at best."""
