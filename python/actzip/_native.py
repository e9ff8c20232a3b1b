"""Functions that need no framework, from the available extension: PyTorch's (``_C``) or Paddle's (``_paddle_C``)."""

try:
    from ._C import (backends, codecs, expected_error, format_version, is_in_memory, levels, policy_rows,  # noqa: F401
                     report_text, version)
except ImportError:
    import paddle  # noqa: F401  (its libraries come first)

    from ._paddle_C import (backends, codecs, expected_error, format_version, is_in_memory, levels,  # noqa: F401
                            policy_rows, report_text, version)
