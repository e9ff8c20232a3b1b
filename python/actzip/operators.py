"""What actzip knows about operators, and how to tell it about those of other libraries."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import _C

Operator = torch._ops.OpOverload | torch._ops.OpOverloadPacket | str


def use_of(target: Operator, slot: str) -> str:
    """Returns the use of a tensor that an operator saves: what the operator's gradient needs of it.

    Args:
        target: an operator, as in a node of an fx graph, or the name of its schema.
        slot: the name of an argument; ``"result"`` for the output, ``"aux0"`` and so on for anything else it saves.

    >>> import torch
    >>> use_of(torch.ops.aten.addmm.default, "mat1")
    'linear_input'
    >>> use_of("mylib::addmm", "mat1")
    'foreign'
    """
    return _C.use_of(_schema_name(target), slot)


def register(target: Operator | type[torch.autograd.Function], **uses: str) -> None:
    """Tells actzip what a custom function or operator needs its saved tensors for, so that they can be compressed.

    Without this, actzip keeps them exactly, as it cannot know. Call it before the first scope in which the function
    runs.

    Args:
        target: an autograd function, or an operator that is not torch's own.
        uses: for each slot its use, which says what the gradient needs of the tensor; docs/policy.md lists the uses.
            Slots are named as in the report: ``argument0`` and so on for the arguments of an autograd function, the
            names of the schema for those of an operator, ``result`` for the output, and ``aux0`` and so on for anything
            else that is saved. Slots that are not given are kept exactly.

    >>> import torch, actzip
    >>> class Scale(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, factor):
    ...         ctx.save_for_backward(x, factor)
    ...         return x * factor
    ...
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         x, factor = ctx.saved_tensors
    ...         return gradient * factor, gradient * x
    >>> actzip.register(Scale, argument0="factor", argument1="factor")
    >>> session = actzip.Session()
    >>> x = torch.randn(64, 64, requires_grad=True)
    >>> with session:
    ...     y = Scale.apply(x * 2, x * 3)
    >>> [site.codec for site in session.report().sites if site.op.endswith(".Scale")]
    ['rotated:3', 'rotated:3']
    """
    is_function = isinstance(target, type) and issubclass(target, torch.autograd.Function)
    name = _function_name(target) if is_function else _schema_name(target).split(".")[0]
    if name.startswith("aten::"):
        raise ValueError(f"register: {name} is torch's own (allowed: autograd functions and operators of other "
                         "libraries; rules of a session reach torch's)")
    _C.register_operator(name, list(uses.items()))
    _registered[name] = tuple(sorted(uses.items()))


#: The registered uses of slots, by name of the function or operator. The keys of cached compiled graphs include them.
_registered: dict[str, tuple[tuple[str, str], ...]] = {}


def registered() -> tuple:
    """Returns everything that was registered, sorted by name."""
    return tuple(sorted(_registered.items()))


def _schema_name(target: object) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target.name()
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name
    if isinstance(target, str):
        return target
    raise TypeError(f"{target!r} is no operator (allowed: an operator of torch.ops, or the name of its schema)")


def _function_name(function: type[torch.autograd.Function]) -> str:
    """Returns the name by which the core knows a function. Raises ValueError if another function has the same name."""
    name = _full_name(function)
    others = {other for other in _subclasses(torch.autograd.Function) if _full_name(other) == name}
    if len(others) > 1:
        raise ValueError(f"register: {len(others)} functions are called {name}; one name can stand for one function")
    return f"Function::{name}"


def _full_name(function: type) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _subclasses(parent: type) -> Iterator[type]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)
