"""What needs no framework, of whichever extension is there: PyTorch's (``_C``) or Paddle's (``paddle._C``)."""

try:
    from ._C import (backends, codecs, expected_error, format_version, levels, policy_rows, report_text,  # noqa: F401
                     version)
except ImportError:
    from .paddle._C import (backends, codecs, expected_error, format_version, levels, policy_rows,  # noqa: F401
                            report_text, version)
