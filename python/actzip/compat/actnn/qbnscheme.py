"""ActNN has a scheme of its own for batch norms. Here their bits come from the same plan as all others."""

from .qscheme import QScheme


class QBNScheme(QScheme):
    """Reads and serves as :class:`QScheme`."""
