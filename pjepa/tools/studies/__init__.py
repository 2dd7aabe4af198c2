"""Studies of what an encoder relies on."""
