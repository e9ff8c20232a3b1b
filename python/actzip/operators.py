"""What actzip knows of torch's operators, for whoever looks at a graph of them."""

from __future__ import annotations

import torch

from . import _C


def use_of(target: torch._ops.OpOverload | torch._ops.OpOverloadPacket | str, slot: str) -> str:
    """What the gradient of an operator needs of a tensor that it saves.

    Args:
        target: an operator, as a node of an fx graph has it, or the name of its schema.
        slot: the name of an argument; ``"result"`` for its output, ``"aux0"`` and so on for what else it saves.

    >>> import torch
    >>> use_of(torch.ops.aten.addmm.default, "mat1")
    'linear_input'
    >>> use_of("mylib::addmm", "mat1")
    'foreign'
    """
    if isinstance(target, torch._ops.OpOverload):
        name = target.name()
    elif isinstance(target, torch._ops.OpOverloadPacket):
        name = target._qualified_op_name
    elif isinstance(target, str):
        name = target
    else:
        raise TypeError(f"{target!r} is no operator (allowed: an operator of torch.ops, or the name of its schema)")
    return _C.use_of(name, slot)
