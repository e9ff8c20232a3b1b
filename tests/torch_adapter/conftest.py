"""Seeds torch before each test, so that failures can be reproduced."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
