"""The limits for all models, and the exceptions with their reasons."""

#: A squared error of 0.11 of the gradient's square. The noise of a batch is many times larger.
LEAST_COSINE = 0.95
#: The largest bias of a mean over 16 draws, as a multiple of that mean's own noise.
MOST_BIAS = 1.3

#: From this cosine on, there is so little noise that a bias relative to it has no meaning.
NO_NOISE = 0.9995

_FEW_ROWS = "a linear layer's weight sums over 128 or 256 rows alone, which a batch learned by heart nearly cancels"
_FEW_PIXELS = "8 images of 64 x 64: few pixels average the rounding of convolutions' inputs away"
#: Models for which a cosine of 0.90 suffices, with the reason.
ALLOWED = {"contrastive-0.5": _FEW_ROWS, "correlation": _FEW_ROWS, "flow": _FEW_ROWS, "log-cosh": _FEW_ROWS,
           "mobilenet-v2": _FEW_PIXELS, "modulated": "its convolutions have 8 groups of 16 channels, one for each image"}


def limit_of(name):
    return 0.90 if name in ALLOWED else LEAST_COSINE


def wrong_with(result):
    problems = []
    if not result.is_exact:
        problems.append("preset 'exact' changes a gradient")
    if not result.is_finite:
        problems.append("a gradient is not finite")
    elif result.cosine < limit_of(result.name):
        problems.append(f"cosine {result.cosine:.3f} (allowed: {limit_of(result.name)} or more)")
    if result.bias > MOST_BIAS and result.cosine < NO_NOISE:
        problems.append(f"bias {result.bias:.2f} (allowed: {MOST_BIAS} or less)")
    return problems
