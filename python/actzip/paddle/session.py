"""Sessions for Paddle: the scope around forward, with a model or without."""

from __future__ import annotations

from typing import Any

import paddle

from ..base_session import BaseSession, Sessions
from ..options import refuse_model
from ..report import Report
from .. import _paddle_C as _C
from . import hooks


def check_model(model: Any, call: str) -> None:
    """Raises TypeError unless it is a layer."""
    if not isinstance(model, paddle.nn.Layer):
        refuse_model(model, call, "paddle.nn.Layer", "actzip.paddle")


class Session(BaseSession):
    """Compresses what backward needs while it is entered: :class:`actzip.Session` for Paddle, with the same options.

    No node of Paddle's can be observed or run again: bits by layer (``adapt="layer"``, ``"measured"``, ``bits=2.5``),
    ``use_gradient`` and ``guard=True`` are refused. docs/paddle.md says what else differs.

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
        self._scopes: list[list[Any]] = []  # of those that are entered: hooks on layers, to be removed
        self._layer_hooks: dict[str, tuple] = {}
        return _C.Session(**options)

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
        """What went wrong while something was saved, where nothing could be raised."""
        fault = self._core.take_fault()
        if fault:
            raise RuntimeError(f"{fault}; what was saved there is kept as it is")

    def _begin_layers(self) -> None:
        """Begins a step of layers that compress their own activations, or of a scope."""
        self._prepare()
        self._raise_fault()
        self._core.begin_step()
        self._has_begun()

    def _remove_hooks(self) -> None:
        for hook in self._scopes.pop():
            hook.remove()

    def _look_at_model(self, removable: list[Any]) -> None:
        """Its parameters, again for each step, since they may have been replaced; and hooks that tell where it is."""
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
    """A session to enter around forward; takes the options of :class:`Session`.

    With a model the same session is given out each time, as long as the options are the same. It is a decorator as
    well, for a function that runs forward and leaves ``backward()`` to its caller.

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
    """A model whose every forward with gradients runs in a session; ``remove()`` takes it off again."""

    def __init__(self, model: paddle.nn.Layer, session: Session) -> None:
        self.session, self._model = session, model
        self._before = type(model)
        model.__class__ = _attached(type(model))
        model.__dict__["_actzip_attachment"] = self

    def __deepcopy__(self, _: dict) -> Attachment:
        """Copies of the model share the session."""
        return self

    def remove(self) -> None:
        """The model is as it was before; what was kept for a pending backward stays valid."""
        if self._model.__dict__.pop("_actzip_attachment", None) is not None:
            self._model.__class__ = self._before

    def report(self) -> Report:
        """What the last forward with gradients kept."""
        return self.session.report()


def _attached(cls: type[paddle.nn.Layer]) -> type[paddle.nn.Layer]:
    """`cls`, called inside of a session. Hooks would not do: Paddle skips those behind a forward that raises."""
    def call(self: paddle.nn.Layer, *inputs: Any, **named: Any) -> Any:
        if not paddle.is_grad_enabled():
            return cls.__call__(self, *inputs, **named)
        with self.__dict__["_actzip_attachment"].session:
            return cls.__call__(self, *inputs, **named)

    names = {"__call__": call, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls)(cls.__name__, (cls,), names)


def attach(model: paddle.nn.Layer, **options: Any) -> Attachment:
    """Compresses inside each forward of ``model``, with no scope to write; takes the options of :class:`Session`.

    What is computed outside the model, a loss for instance, is kept as Paddle keeps it. A forward without gradients is
    no step of the session.

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
