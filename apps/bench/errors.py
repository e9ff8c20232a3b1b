"""The one error that the commands report without a traceback."""


class BenchError(Exception):
    """Something the user can mend: a missing file or package, a value that is not allowed."""
