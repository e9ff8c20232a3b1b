"""torch.compile with compressed tensors between forward and backward."""

from .api import CompiledSession, compile, compile_options, compiled_session

__all__ = ["CompiledSession", "compile", "compile_options", "compiled_session"]
