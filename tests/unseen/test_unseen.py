"""The quickest of the models that actzip was not tuned for; `make test-models` measures all of them."""

import pytest
from limits import ALLOWED, wrong_with
from measure import CASES, measured

QUICK = ("capsules", "charbonnier", "cohere", "contrastive-0.01", "deit", "distances", "gin", "policy", "quantiles",
         "siren", "splines", "unet", "variational")


@pytest.mark.parametrize("name", QUICK)
def test_gradients_are_close_and_unbiased(name):
    assert not wrong_with(measured(name))


def test_what_spoils_gradients_is_seen():
    """The limits can be missed: here with one bit for everything, and without the guard."""
    assert wrong_with(measured("distances", preset="affine:1", guard=False))


def test_reasons_are_given_for_models_that_exist():
    assert set(ALLOWED) <= set(CASES) and all(ALLOWED.values())
