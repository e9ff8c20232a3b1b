"""Runs a step of a third-party model, and checks what must hold for it."""

import actzip
import torch
import torch.nn.functional as F

#: The known reasons to keep a tensor as it is. A new one fails tests, so that a person looks at it.
REASONS = (
    "a parameter or buffer", "derived from parameters", "a leaf that requires grad", "an operator's weight",
    "small", "integers without a known bound", "its bound needs all its bits", "its own type is as small",
    "no codec takes f64", "of a type that no codec takes", "small, and its gradient is sensitive",
    "masks of attention are kept exactly", "statistics of attention are kept exactly", "statistics and weights of a norm are kept exactly",
    "states and workspace of a recurrent layer are kept exactly", "its gradient compares values", "as a later saver of the same memory asks",
    "its caller held it until backward", "its layer runs again in backward", "in a loss, which may divide by it")


def step(model, loss, session=None):
    """Returns the gradients of one step from a fixed random state."""
    model.zero_grad()
    torch.manual_seed(1)
    if session is None:
        value = loss()
    else:
        with session:
            value = loss()
    value.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def cosine(a, b):
    flat = [torch.cat([g.flatten().double() for g in grads.values()]) for grads in (a, b)]
    return float(F.cosine_similarity(*flat, dim=0))


def check_exact(model, loss):
    """`exact` must equal torch bit for bit, except for gradients that differ between two runs of torch itself."""
    plain, again = step(model, loss), step(model, loss)
    session = actzip.Session(model, preset="exact", min_elems=0)
    actual = step(model, loss, session)
    stable = [name for name in plain if torch.equal(plain[name], again[name])]
    assert stable
    for name in stable:
        assert torch.equal(plain[name], actual[name]), name
    assert session.live_bytes == 0 and not session.report().index_overflow


def check_default(model, loss, times_smaller, limit=0.90):
    """`default` must be close, smaller, and explain each tensor that it does not compress. Returns the report."""
    plain, session = step(model, loss), actzip.Session(model)
    for _ in range(3):  # from the second step on, it knows which results several operators save
        assert cosine(plain, step(model, loss, session)) >= limit, session.report().text
    report = session.report()
    saved = [site for site in report.sites if site.cause != "parameter"]  # without autocast's copies of weights
    before, after = (sum(getattr(site, name) for site in saved) for name in ("bytes_before", "bytes_after"))
    assert before > times_smaller * after, report.text
    for site in report.sites:
        assert site.reason, site
        if site.codec == "as is":
            assert site.reason.startswith(REASONS), site
    assert not [site for site in report.sites if "not know" in site.reason], report.text
    assert session.live_bytes == 0 and not report.index_overflow
    return report
