"""Tests that need a GPU skip without one; where ACTZIP_REQUIRE_CUDA=1 says that there must be one, they fail."""

import os

import pytest
import torch

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("ACTZIP_REQUIRE_CUDA") != "1", reason="no GPU")
