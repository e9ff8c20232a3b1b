"""ActNN's configuration and levels."""

from __future__ import annotations

from ..actnn_config import ActNNConfig

config = ActNNConfig()
set_optimization_level, preset = config.set_optimization_level, config.preset
bits_of, session_options = config.bits_of, config.session_options
