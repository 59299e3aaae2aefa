"""Why the system cannot start."""


class StartError(Exception):
    """A reason not to start, in one line that a person can act on; the process ends with a status other than 0."""
