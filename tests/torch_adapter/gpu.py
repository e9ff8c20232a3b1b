"""Marks tests that need a GPU. Without one they skip, or fail if ACTZIP_REQUIRE_CUDA=1."""

import os

import pytest
import torch

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("ACTZIP_REQUIRE_CUDA") != "1", reason="no GPU")
