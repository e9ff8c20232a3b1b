"""``python -m actzip``: the command `actzip`."""

import sys

from .console import main

sys.exit(main())
