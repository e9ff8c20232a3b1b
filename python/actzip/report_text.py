"""A report that was saved as JSON, as the table that the session itself would print."""

from __future__ import annotations

from .report import PlanReport, Report, SampleBits, SiteReport


def report_text(report: Report) -> str:
    name_width = max([4, *(len(site.site) for site in report.sites)])
    shape_width = max([5, *(len(_shape(site)) for site in report.sites)])

    def line(name: str, shape: str, dtype: str, codec: str, before: str, after: str, variances: str, why: str) -> str:
        return (f"{name:<{name_width}}  {shape:<{shape_width}}  {dtype:<4}  {codec:<14}  {before:>10}  {after:>10}  "
                f"{variances if report.plan else ''}{why}\n")

    lines = [line("site", "shape", "type", "kept as", "before", "after", _two("sensitivity", "variance"), "why")]
    lines += [
        line(site.site, _shape(site), site.dtype, site.codec, bytes_text(site.bytes_before),
             bytes_text(site.bytes_after), _two(_number(site.sensitivity), _number(site.variance)),
             site.reason + _samples(site.sample_bits))
        for site in report.sites]
    return "".join(lines) + _summary(report)


def bytes_text(count: int) -> str:
    """"640 B", "1.5 GiB"."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def _summary(report: Report) -> str:
    ratio = report.bytes_before / report.bytes_after if report.bytes_after else 0.0
    level = f", run as '{report.runs_as}' without its host part" if report.runs_as else ""
    text = (f"preset '{report.preset}'{level}, step {report.steps}: {'would keep' if report.dry else 'kept'} "
            f"{bytes_text(report.bytes_after)} instead of {bytes_text(report.bytes_before)} "
            f"({ratio:.1f} times smaller)\n")
    if report.plan:
        text += _plan(report.plan)
    if known := report.sample_statistics:
        text += f"gradients of {known.samples} samples are known in {bytes_text(known.bytes)}\n"
    if report.index_overflow:
        text += "an index lay outside the bound of its operator: its gradient was wrong\n"
    return text


def _plan(plan: PlanReport) -> str:
    if plan.plans == 0:
        return f"no plan yet for {plan.budget_bits:g} bits on average: the table decides\n"
    text = (f"plan {plan.plans}: {plan.average_bits:.2f} bits on average of {plan.budget_bits:g}; variance of the "
            f"gradient, by its square: {_variance('predicted', plan.predicted_variance)}")
    if plan.measured_variance is not None:
        text += _variance(", measured", plan.measured_variance)
    text += _variance(", its own over batches", plan.gradient_variance) + "\n"
    added = plan.predicted_variance if plan.measured_variance is None else plan.measured_variance
    if added is not None and plan.gradient_variance is not None and added > 0.1 * plan.gradient_variance:
        text += "compression adds more than 10 % to the gradient's own variance: give more bits, or larger batches\n"
    return text


def _shape(site: SiteReport) -> str:
    return "x".join(map(str, site.shape))


def _two(a: str, b: str) -> str:
    return f"{a:>11}  {b:>9}  "


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _variance(what: str, variance: float | None) -> str:
    return f"{what} {'not known' if variance is None else format(variance, '.3g')}"


def _samples(bits: SampleBits | None) -> str:
    return "" if bits is None else (f"; {bits.samples} samples with {bits.fewest} to {bits.most} bits, "
                                    f"{bits.mean:.2f} on average")
