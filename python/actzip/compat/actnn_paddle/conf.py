"""The port's configuration and levels, which are those of ActNN."""

from ..actnn_config import ActNNConfig

config = ActNNConfig()
set_optimization_level = config.set_optimization_level
