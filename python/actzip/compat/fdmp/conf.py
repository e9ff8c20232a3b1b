"""DIVISION's configuration."""

from __future__ import annotations

import os
from typing import Any

from ..config import Config, Field, is_amount, is_flag

_FLAG = (is_flag, "True, False")
_ONE_PART = "both parts are kept, see docs/division.md for what each is worth"

FIELDS = {
    "lfc_block": Field(8, lambda value: value in (2, 4, 8, 16, 32), "2, 4, 8, 16, 32"),
    "hfc_bit_num": Field(2, lambda value: value in range(1, 9), "1 to 8"),
    "compress_activation": Field(True, *_FLAG),
    "compress_bn_input": Field(True, *_FLAG),
    "non_quant": Field(False, *_FLAG),
    "train": Field(True, *_FLAG),
    "num_classes": Field(1000),
    "empty_cache_threshold": Field(None, is_amount, "a part of the reserved memory, 0 to 1, or None"),
    "pipeline_threshold": Field(None, is_amount, "bytes, or None"),
    "cudnn_benchmark_conv2d": Field(True, *_FLAG),
    "half_precision": Field(False, *_FLAG),
    "debug_memory_model": Field(os.environ.get("DEBUG_MEM") == "True", *_FLAG),
    "debug_speed": Field(False, *_FLAG),
    "debug_fd_memory": Field(False, *_FLAG, gone="session_of(model).report() shows bytes by layer"),
    "debug_memory_op_forward": Field(False, *_FLAG, gone="session_of(model).report() shows bytes by layer"),
    "debug_memory_op_backward": Field(False, *_FLAG, gone="session_of(model).live_bytes falls in backward"),
    "simulate": Field(False, *_FLAG, gone="every width is packed on every device"),
    "group_size": Field(256, gone="a group is a channel of a sample"),
    "max_thread": Field(1024, gone="kernels choose their threads"),
    "rm_lfc": Field(False, *_FLAG, gone=_ONE_PART),
    "rm_hfc": Field(False, *_FLAG, gone=_ONE_PART),
    "lfc_flag": Field(True, *_FLAG, gone=_ONE_PART),
    "hfc_flag": Field(True, *_FLAG, gone=_ONE_PART),
    "swap": Field(False, *_FLAG, gone="actzip.Session(preset='division', offload='host') moves bytes"),
    "deter_round": Field(False, *_FLAG, gone="rounding to nearest is wrong in the same direction each time"),
}


class QuantizationConfig(Config):
    def __init__(self) -> None:
        super().__init__("fdmp", FIELDS)


config = QuantizationConfig()

#: Options of the trainers, with the fields that they set.
_OPTIONS = {"lfc_block": "lfc_block", "hfc_bit_num": "hfc_bit_num", "amp": "half_precision", "non_quant": "non_quant",
            "simulate": "simulate", "group_size": "group_size", "rm_lfc": "rm_lfc", "rm_hfc": "rm_hfc",
            "debug_fd_memory": "debug_fd_memory", "num_classes": "num_classes"}


def config_init(args: Any) -> None:
    """Sets the fields from a trainer's arguments. Fields without an argument stay as they are."""
    for option, field in _OPTIONS.items():
        if getattr(args, option, None) is not None:
            setattr(config, field, getattr(args, option))
    if getattr(args, "gpu_devices", None) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, args.gpu_devices))


def session_options() -> dict[str, Any]:
    """Returns options for :class:`actzip.Session`."""
    if not config.compress_activation or config.non_quant:
        return {"preset": "exact"}
    norms = {} if config.compress_bn_input else {"use:batch_norm_input": "none"}
    return {"preset": f"division:{config.hfc_bit_num}:block={config.lfc_block}", "rules": norms}
