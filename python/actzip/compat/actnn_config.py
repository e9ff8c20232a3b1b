"""ActNN's configuration and levels, for the layers of any framework."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..levels import LEVELS
from .config import GROUP_SIZES, Config, Field, codec_of_groups, is_amount, is_flag, is_group_size

_FLAG = (is_flag, "True, False")


def _is_bits(value: Any) -> bool:
    return isinstance(value, (int, float)) and 1 <= value <= 8


def _is_list_of_bits(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(map(_is_bits, value))


def from_environment(name: str) -> bool:
    return os.environ.get(name, "False") == "True"


_FIELDS = {
    "compress_activation": Field(True, *_FLAG),
    "activation_compression_bits": Field([2, 8, 8], _is_list_of_bits, "a list of bits, 1 to 8, by a layer's group"),
    "pergroup": Field(True, *_FLAG),
    "perlayer": Field(True, *_FLAG),
    "initial_bits": Field(8, lambda value: value in (1, 2, 3, 4, 8), "1, 2, 3, 4, 8"),
    "stochastic": Field(True, *_FLAG),
    "training": Field(True, *_FLAG),
    "group_size": Field(256, is_group_size, GROUP_SIZES),
    "use_gradient": Field(False, *_FLAG),
    "adaptive_conv_scheme": Field(True, *_FLAG),
    "adaptive_bn_scheme": Field(True, *_FLAG),
    "simulate": Field(False, *_FLAG, gone="every width is packed on every device"),
    "enable_quantized_bn": Field(True, *_FLAG),
    "empty_cache_threshold": Field(None, is_amount, "a part of the reserved memory, 0 to 1, or None"),
    "pipeline_threshold": Field(None, is_amount, "bytes, or None"),
    "cudnn_benchmark_conv2d": Field(True, *_FLAG),
    "swap": Field(False, *_FLAG),
    "debug_memory_model": Field(from_environment("DEBUG_MEM"), *_FLAG),
    "debug_speed": Field(from_environment("DEBUG_SPEED"), *_FLAG),
    "debug_memory_op_forward": Field(False, *_FLAG, gone="actnn.session_of(model).report() shows bytes by layer"),
    "debug_memory_op_backward": Field(False, *_FLAG, gone="actnn.session_of(model).live_bytes falls in backward"),
    "debug_remove_bn": Field(False, *_FLAG, gone="put an Identity in place of the layers"),
    "debug_remove_relu": Field(False, *_FLAG, gone="put an Identity in place of the layers"),
}

_FIXED = {"adaptive_conv_scheme": False, "adaptive_bn_scheme": False}
_CAPPED = {"cudnn_benchmark_conv2d": LEVELS["actnn:L3.1"].autotune,
           "empty_cache_threshold": LEVELS["actnn:L3.1"].empty_cache_below,
           "pipeline_threshold": LEVELS["actnn:L3.1"].chunk_bytes}
#: The fields that each level sets. It sets no others.
_LEVELS: dict[str, dict[str, Any]] = {
    "L0": {"compress_activation": False, **_FIXED},
    "L1": {"activation_compression_bits": [4], "enable_quantized_bn": False, **_FIXED},
    "L2": {"activation_compression_bits": [4], **_FIXED},
    "L2.5": {"perlayer": False},
    "L3": {},
    "L3.1": _CAPPED,
    "L4": {"swap": True},
    "L5": {"swap": True},
    "swap": {"swap": True, "compress_activation": False},
}
#: Levels that are the same as another one to the session.
_KINDS = {"L3.1": "L3", "L5": "L4"}


class ActNNConfig(Config):
    """ActNN's fields. They start at level L3, as in ActNN."""

    def __init__(self) -> None:
        super().__init__("actnn", _FIELDS)
        self.set_optimization_level("L3")

    def set_optimization_level(self, level: str) -> None:
        """Sets the fields of a level. Fields that the level before has set are reset, unless changed since."""
        if level not in _LEVELS:
            raise ValueError(f"actnn level {level!r} (allowed: {', '.join(_LEVELS)})")
        self.set_level(level, _LEVELS[level])

    def preset(self) -> str:
        """Returns the level that matches the fields, as a preset of actzip."""
        kind = self._level_of_fields()
        return f"actnn:{self.level if _KINDS.get(self.level, self.level) == kind else kind}"

    def _level_of_fields(self) -> str:
        if not self.compress_activation:
            return "swap" if self.swap else "L0"
        if not self.adaptive_conv_scheme and not self.adaptive_bn_scheme:
            return "L2" if self.enable_quantized_bn else "L1"
        if self.swap:
            return "L4"
        return "L3" if self.perlayer else "L2.5"

    def bits_of(self, group: int) -> float:
        """Returns the bits for a layer's ``group=``. Beyond the end of the list, its last entry applies."""
        bits = self.activation_compression_bits
        return bits[min(group, len(bits) - 1)]

    def session_options(self, groups: Mapping[str, int], num_samples: int) -> dict[str, Any]:
        """Returns options for a session. `groups` are the groups of layers, by name; 0 is the default group."""
        name = self.preset()
        options: dict[str, Any] = {"preset": name}
        if not LEVELS[name].bits:
            return options
        options["bits"] = self.bits_of(0)
        options["codec"] = codec_of_groups(self.group_size if self.pergroup else 1024,
                                           "" if self.stochastic else "nearest")
        options["rules"] = dict(self._rules(groups, LEVELS[name].adapt != ""))
        if not LEVELS[name].adapt:
            return options
        options["max_bits"] = self.initial_bits
        if self.use_gradient:
            options.update(use_gradient=True, num_samples=num_samples)
        return options

    def _rules(self, groups: Mapping[str, int], adapts: bool) -> Iterator[tuple[str, str]]:
        """Yields rules for layers that the fields treat differently from the preset."""
        if not self.enable_quantized_bn:
            yield "use:batch_norm_input", "as is"
        for module, group in groups.items():
            if group:
                yield f"{module}: *", _fixed_codec(self.bits_of(group))
        if adapts and not self.adaptive_conv_scheme:
            for uses in ("use:convolution_*", "use:linear_*"):
                yield uses, _fixed_codec(self.bits_of(0))
        if adapts and not self.adaptive_bn_scheme:
            yield "use:batch_norm_input", _fixed_codec(self.bits_of(0))


def _fixed_codec(bits: float) -> str:
    """Returns the codec of that many bits, or of the next width above."""
    whole = next(width for width in (1, 2, 3, 4, 8) if width >= bits)
    return "affine:8:dithered" if whole == 8 else f"rotated:{whole}"
