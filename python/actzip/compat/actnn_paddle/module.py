"""The port's conversion of a whole model."""

from __future__ import annotations

import functools
from typing import Any

import paddle

from ...paddle.convert import bind, change_classes
from .conf import config
from .layers import LAYERS, NORMS, paddles
from .sessions import ConfiguredSession, SessionsByConfig


class QModule(paddle.nn.Layer):
    """Wraps a model and gives it the port's layers. ``train()`` and ``eval()`` set ``config.training``."""

    def __init__(self, model: paddle.nn.Layer) -> None:
        super().__init__()
        self.model = model
        self._sessions, self._bound = SessionsByConfig(), None
        self.convert_layers(model)

    @staticmethod
    def convert_layers(model: paddle.nn.Layer) -> None:
        """Converts in place. Batch norms are converted only with ``config.enable_quantized_bn``."""
        change_classes(model, {paddles(layer): layer for layer in LAYERS
                               if config.enable_quantized_bn or layer not in NORMS})

    def session(self) -> ConfiguredSession:
        """Returns the session for the current configuration, and gives it to the layers."""
        groups = {path: getattr(layer, "group", 0) for path, layer in self.model.named_sublayers()}
        session = self._sessions.now(functools.partial(ConfiguredSession, self.model), groups)
        if session is not self._bound:
            bind(self.model, session)
            self._bound = session
        return session

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if config.training and paddle.is_grad_enabled():
            self.session()
        return self.model(*inputs, **named)

    def train(self) -> None:
        config.training = True
        super().train()

    def eval(self) -> None:
        config.training = False
        super().eval()

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """Returns the state with the names of the model, without the wrapper."""
        return self.model.state_dict(*args, **options)

    def set_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.model.set_state_dict(*args, **options)

    set_dict = load_dict = set_state_dict


def session_of(model: QModule) -> ConfiguredSession:
    """Returns the session of a QModule. Its ``report()`` shows what the last step kept."""
    return model.session()
