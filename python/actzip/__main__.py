"""``python -m actzip``: the command `actzip`."""

import sys

from .console import main

if __name__ == "__main__":
    sys.exit(main())
