"""Sessions for Paddle: the scope around forward, with or without a model."""

from __future__ import annotations

from typing import Any

import paddle

from ..base_session import BaseSession, Sessions
from ..options import refuse_model
from ..report import Report
from .. import _paddle_C as _C
from . import hooks


def check_model(model: Any, call: str) -> None:
    """Raises TypeError unless the model is a ``paddle.nn.Layer``."""
    if not isinstance(model, paddle.nn.Layer):
        refuse_model(model, call, "paddle.nn.Layer", "actzip.paddle")


class Session(BaseSession):
    """Compresses the tensors that Paddle saves for backward while the session is entered.

    It is :class:`actzip.Session` for Paddle, with the same options. Nodes of Paddle's graph cannot be observed or run
    again, so a plan (``adapt="layer"``, ``"measured"``, ``bits=2.5``), ``use_gradient`` and ``guard=True`` are refused.
    docs/paddle.md says what else differs.

    >>> import paddle
    >>> import actzip.paddle as actzip
    >>> session = actzip.Session(preset="exact")
    >>> x = paddle.randn([64, 64])
    >>> x.stop_gradient = False
    >>> with session:
    ...     y = paddle.nn.functional.relu(x).sum()
    >>> y.backward()
    >>> [site.codec for site in session.report().sites]
    ['mask']
    """

    _package = "actzip.paddle"
    _check_model = staticmethod(check_model)

    def _core_of(self, **options: Any) -> _C.Session:
        if options["use_gradient"]:
            raise ValueError("actzip.paddle: use_gradient=True (allowed: False; bits of samples go by their size)")
        if options["guard"]:
            raise ValueError("actzip.paddle: guard=True (allowed: None or False; use verify to compare gradients)")
        if "layer" in options["adapt"] or "measured" in options["adapt"]:
            raise ValueError(f"actzip.paddle: adapt={options['adapt']!r} (allowed: 'sample' or '')")
        if options["bits"] is not None and options["bits"] % 1 != 0:
            raise ValueError(f"actzip.paddle: bits={options['bits']!r} (allowed: a whole number; an average needs bits "
                             "by layer)")
        hooks.install()
        self._scopes: list[list[Any]] = []  # for each entered scope, the hooks on layers, to be removed later
        self._layer_hooks: dict[str, tuple] = {}
        return _C.Session(**options)

    @staticmethod
    def _why_not_to_host() -> str:
        return "actzip.paddle compresses only tensors of the CPU"

    def __enter__(self) -> Session:
        if not paddle.in_dynamic_mode():
            raise RuntimeError("actzip.paddle: a session was entered in static mode (allowed: dynamic graphs; "
                               "paddle.disable_static())")
        self._begin_layers()
        removable: list[Any] = []
        self._scopes.append(removable)
        try:
            self._look_at_model(removable)
            hooks.enter(self._pack, self._unpack)
        except BaseException:
            self._remove_hooks()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if not self._scopes:
            raise RuntimeError("actzip.paddle: this session is not entered")
        hooks.leave()
        self._remove_hooks()
        if kind is None:
            self._raise_fault()

    def _raise_fault(self) -> None:
        """Raises the error, if any, that occurred while a tensor was saved, where Paddle lets nothing be raised."""
        fault = self._core.take_fault()
        if fault:
            raise RuntimeError(f"{fault}; what was saved there is kept as it is")

    def _begin_layers(self) -> None:
        """Begins a step, of a scope or of layers that compress their own activations."""
        self._prepare()
        self._raise_fault()
        self._core.begin_step()
        self._has_begun()

    def _remove_hooks(self) -> None:
        for hook in self._scopes.pop():
            hook.remove()

    def _look_at_model(self, removable: list[Any]) -> None:
        """Tells the core the model's parameters, in each step since they may be replaced, and adds hooks to its layers
        that tell which one is running."""
        model = self._living_model()
        if model is None:
            return
        memory = []
        for path, layer in model.named_sublayers(include_self=True):
            memory += [tensor for tensor in (*layer._parameters.values(), *layer._buffers.values())
                       if tensor is not None and tensor._is_initialized()]
            if path not in self._layer_hooks:
                self._layer_hooks[path] = self._core.module_hooks(path)
            before, after = self._layer_hooks[path]
            removable += [layer.register_forward_pre_hook(before), layer.register_forward_post_hook(after)]
        self._core.set_parameters(memory)


def compress(model: paddle.nn.Layer | None = None, **options: Any) -> Session:
    """Returns a session to enter around forward; takes the options of :class:`Session`.

    With a model, each call with the same options returns the same session. It also works as a decorator, for a function
    that runs forward and leaves ``backward()`` to its caller.

    >>> import paddle
    >>> import actzip.paddle as actzip
    >>> model = paddle.nn.Linear(128, 128)
    >>> with actzip.compress(model):
    ...     loss = model(paddle.randn([64, 128])).sum()
    >>> loss.backward()
    """
    if model is None:
        return Session(**options)
    check_model(model, "compress")
    return _sessions.of(model, options)


_sessions = Sessions(Session)


class Attachment:
    """Runs each forward of a model with gradients in a session, until ``remove()``; made by :func:`attach`."""

    def __init__(self, model: paddle.nn.Layer, session: Session) -> None:
        self.session, self._model = session, model
        self._before = type(model)
        model.__class__ = _attached(type(model))
        model.__dict__["_actzip_attachment"] = self

    def __deepcopy__(self, _: dict) -> Attachment:
        """Returns the attachment itself: copies of the model share it."""
        return self

    def remove(self) -> None:
        """Detaches the session from the model. A pending backward still works."""
        if self._model.__dict__.pop("_actzip_attachment", None) is not None:
            self._model.__class__ = self._before

    def report(self) -> Report:
        """Returns what the last forward with gradients kept."""
        return self.session.report()


def _attached(cls: type[paddle.nn.Layer]) -> type[paddle.nn.Layer]:
    """Returns a subclass of `cls` whose calls run in a session. Hooks would not do, since Paddle skips those that run
    after forward if forward raises."""
    def call(self: paddle.nn.Layer, *inputs: Any, **named: Any) -> Any:
        if not paddle.is_grad_enabled():
            return cls.__call__(self, *inputs, **named)
        with self.__dict__["_actzip_attachment"].session:
            return cls.__call__(self, *inputs, **named)

    names = {"__call__": call, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls)(cls.__name__, (cls,), names)


def attach(model: paddle.nn.Layer, **options: Any) -> Attachment:
    """Compresses in each forward of ``model``, without a ``with`` statement; takes the options of :class:`Session`.

    What is computed outside the model, such as a loss, is not compressed. A forward without gradients is no step of the
    session.

    >>> import paddle
    >>> import actzip.paddle as actzip
    >>> model = paddle.nn.Linear(128, 128)
    >>> handle = actzip.attach(model)
    >>> model(paddle.randn([64, 128])).sum().backward()
    >>> handle.remove()
    """
    check_model(model, "attach")
    if "_actzip_attachment" in model.__dict__:
        raise ValueError("attach: this model is attached already (allowed: remove() first)")
    return Attachment(model, Session(model, **options))
