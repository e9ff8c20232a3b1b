"""Checks each save of a session at once: the restored tensor must be as close to the saved one as its codec says."""

import math
import sys
from pathlib import Path

import torch
from actzip import _C
from torch.autograd.graph import saved_tensors_hooks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reference"))
import actzip_reference as ref  # noqa: E402

#: The error of one group may be this many times the table's, which is an average over many groups: groups with few
#: elements, or with few that are not 0, scatter more.
SLACK = {True: 5.0, False: 12.0}  #: by whether the group is whole
#: And this much more, because one coordinate of a rotated group may be far beyond the last level (6 deviations in one
#: group of a million).
TAIL = 0.1


class Wrong(AssertionError):
    pass


def in_memory_order(tensor):
    """Returns the unique elements in the order in which codecs see them."""
    dims = [d for d in range(tensor.dim()) if tensor.size(d) != 1 and tensor.stride(d) != 0]
    dims.sort(key=lambda d: -tensor.stride(d))
    for d in range(tensor.dim()):
        if d not in dims:
            tensor = tensor.narrow(d, 0, 1)
    rest = [d for d in range(tensor.dim()) if d not in dims]
    return tensor.permute([*dims, *rest]).reshape(-1)


def bits_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def groups_of(x, size, row):
    """Splits into groups of `size` elements that restart at each `row`. The last group of a row is padded with zeros;
    the second result says which elements are real."""
    rows, missing = x.view(-1, row), -row % size
    is_there = torch.cat([torch.ones_like(rows, dtype=torch.bool), rows.new_zeros(len(rows), missing).bool()], 1)
    return torch.cat([rows, rows.new_zeros(len(rows), missing)], 1).view(-1, size), is_there.view(-1, size)


def possible_rows(shape, group):
    """Widths at which groups may restart: those of norms over the last dimensions, or over parts of the channels."""
    widths = {math.prod(shape[d:]) // parts for d in range(len(shape)) for parts in (1, 2, 3, 4, 6, 8)
              if math.prod(shape[d:]) % parts == 0}
    return sorted(width for width in widths if width >= 32 and width % group != 0)


class Oracle:
    """Enter `oracle.scope()` around a forward. Raises Wrong at the first wrong save, and counts saves by codec."""

    def __init__(self, session):
        self.session, self.counts = session, {}

    def scope(self):
        return _Both(self.session, saved_tensors_hooks(self.pack, self.session._unpack))

    def pack(self, tensor):
        packed = self.session._pack(tensor)
        site, kept = _C.kept_as(packed)
        codec = kept.split(":")[0]
        with torch.no_grad():
            if kept not in ("shape only", "recomputed"):
                restored = self.session._unpack(packed)
                fault = self.fault(kept, codec, tensor.detach(), restored.detach())
                if fault:
                    raise Wrong(f"{site} {tuple(tensor.shape)} {tensor.dtype} kept as {kept}: {fault}")
        self.counts[codec] = self.counts.get(codec, 0) + 1
        return packed

    def fault(self, kept, codec, saved, restored):
        if restored.shape != saved.shape or restored.dtype != saved.dtype:
            return f"comes back as {tuple(restored.shape)} {restored.dtype}"
        if kept == "as is" or codec in ("index", "copy"):
            same = torch.equal(bits_of(saved), bits_of(restored))
            return "" if same else "is not the same bit for bit"
        x, y = in_memory_order(saved), in_memory_order(restored)
        if saved.dtype == torch.bool:
            return "" if torch.equal(x, y) else "is another mask"
        spec, check = ref.parse(kept), getattr(self, f"of_{codec}")
        if codec not in ("affine", "rotated"):
            return check(spec, x, y)
        first = check(spec, x, y, len(x)) if len(x) else ""
        in_rows = first and saved.is_contiguous() and any(
            not check(spec, x, y, row) for row in possible_rows(saved.shape, spec.group) if len(x) % row == 0)
        return "" if not first or in_rows else first

    def of_mask(self, spec, x, y):
        x = x.float()
        below = (x <= spec.lo) if spec.lo != -torch.inf else torch.zeros_like(x, dtype=torch.bool)
        above = (x >= spec.hi) if spec.hi != torch.inf else torch.zeros_like(x, dtype=torch.bool)
        inside = torch.where(x.isnan(), torch.tensor(spec.nan == "on"), ~(below | above))
        expected = torch.where(inside, spec.on, spec.off).to(y.dtype)
        if not torch.equal(expected, y):
            return f"{int((expected != y).sum())} bits are wrong"
        sides = [(spec.on, True), (spec.off, False)] if spec.on != 1 or spec.off != 0 else []
        for value, is_inside in sides:  # as the operator reads them: rounded to the tensor's type
            v = float(torch.tensor(value).to(y.dtype))
            if (spec.lo < v < spec.hi) != is_inside and spec.lo != 0:
                return f"{value} does not stand for its side of {spec.lo} and {spec.hi}"
        return ""

    def of_cast(self, spec, x, y):
        expected = x.to(torch.bfloat16 if spec.to == "bf16" else torch.float16).to(y.dtype)
        return "" if torch.equal(expected.nan_to_num(), y.nan_to_num()) else "is rounded otherwise"

    def of_affine(self, spec, x, y, row):
        """The error must be within one step of the group, or half a step if rounded to nearest."""
        last_place = y.double().abs() * {torch.float32: 2**-23, torch.bfloat16: 2**-8, torch.float16: 2**-10}[y.dtype]
        x = x.double().clamp(min=spec.floor)
        groups, is_there = groups_of(x, spec.group, row)
        low = torch.where(is_there, groups, torch.inf).amin(1, keepdim=True)
        high = torch.where(is_there, groups, -torch.inf).amax(1, keepdim=True)
        place = 2.0**-7 if spec.stats == "bf16" else 2.0**-22
        step = (high - low + place * low.abs()) / (2**spec.bits - 1) * (1 + place)
        share = 0.5 if spec.rounding == "nearest" else 1.0
        bound = (share * step + 2.0**-120).expand(groups.shape)[is_there] + last_place + 2.0**-24
        return self.outside(x, y, bound, groups_of(x, spec.group, row))

    def outside(self, x, y, bound, grouped):
        """Describes the worst element outside its bound, or returns "". Groups that are not finite must become NaN."""
        groups, is_there = grouped
        spread = lambda rows: rows.expand(groups.shape)[is_there]  # noqa: E731
        is_finite = spread((groups.abs() < 2.0**120).all(1, keepdim=True))
        is_spoilt = spread((~groups.isfinite()).any(1, keepdim=True))
        if y[is_spoilt].isfinite().any():
            return "has plausible numbers where its group is not finite"
        if not y[is_finite].isfinite().all():
            return "has lost numbers that are finite"
        error = (x - y.double()).abs()
        wrong = (error > bound) & is_finite
        return f"{int(wrong.sum())} elements are up to {float((error / bound)[wrong].max()):.3g} bounds away" if wrong.any() else ""

    def of_rotated(self, spec, x, y, row):
        """A group's squared error, relative to the spread of its elements, must match the registry's table."""
        table = _C.expected_error(f"rotated:{spec.bits}")
        x, y = x.double(), y.double()
        if spec.mask_plane and not torch.equal(y[x == 0], torch.zeros_like(y[x == 0])):
            return "zeros behind a mask plane are not 0"
        groups, is_there = groups_of(x, spec.group, row)
        restored, _ = groups_of(y, spec.group, row)
        is_finite = (groups.abs() < 2.0**46).all(1)
        is_spoilt = (~groups.isfinite()).any(1)
        if (restored[is_spoilt].isfinite() & is_there[is_spoilt] & (groups[is_spoilt] != 0)).any():
            return "has plausible numbers where its group is not finite"
        whole = []
        for at in is_finite.nonzero().flatten().tolist():
            own, back = groups[at][is_there[at]], restored[at][is_there[at]]
            if not back.isfinite().all():
                return "has lost numbers that are finite"
            spread = float((own - own.mean()).square().sum()) + 2.0**-14 * float(own.square().sum()) + 2.0**-100
            if spec.mask_plane:
                spread = max(spread, float(own.square().sum()))
            relative = float((own - back).square().sum()) / spread
            if relative > SLACK[len(own) == spec.group] * table + TAIL:
                return f"a group of {len(own)} has an error of {relative:.3g}, where the table has {table:.3g}"
            if len(own) == spec.group:
                whole.append(relative)
        if len(whole) >= 4 and sum(whole) / len(whole) > 3 * table + TAIL / 4:
            return f"{len(whole)} groups have an error of {sum(whole) / len(whole):.3g}, where the table has {table:.3g}"
        return ""

    def of_dual(self, spec, x, y):
        """Averages lie in the range of x, so residuals span at most twice that range; the error is one step of it."""
        if not x.isfinite().all():
            return ""
        x, y = x.double(), y.double()
        bound = 2.1 * float(x.max() - x.min()) / (2**spec.bits - 1) + 2.0**-7 * float(x.abs().max()) + 2.0**-24
        worst = float((x - y).abs().max())
        return "" if worst <= bound else f"an element is {worst:.3g} away, where {bound:.3g} is the most"


class _Both:
    def __init__(self, *scopes):
        self.scopes = scopes

    def __enter__(self):
        for scope in self.scopes:
            scope.__enter__()

    def __exit__(self, *exception):
        for scope in reversed(self.scopes):
            scope.__exit__(*exception)
