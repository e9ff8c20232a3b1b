"""The one error that the commands report without a traceback."""


class BenchError(Exception):
    """An error that the user can fix: a missing file or package, or a value that is not allowed."""
