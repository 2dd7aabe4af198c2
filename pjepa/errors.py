"""The one exception users are meant to read."""


class InputError(Exception):
    """Bad input: one line that says what is wrong, where, and what to do next."""
