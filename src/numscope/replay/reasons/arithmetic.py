"""The rules for arithmetic: products, quotients, powers, sums, means, normalizations, and casts."""

from __future__ import annotations

import math

from numscope.records.finding import Operand, Reason
from numscope.records.words import count
from numscope.replay.reasons.case import Case, Range, Verdict, explains, in_float32, number, of, overflow


@explains("addcmul")
def _added_product(case: Case) -> Verdict | None:
    a, b = case.operand("tensor1", "tensors1"), case.operand("tensor2", "tensors2")
    value, added = case.optional("value", "scalars"), case.optional("self")
    scaled = f" × {value.largest}" if value is not None and value.abs_max != 1 else ""
    product = f"{a.largest} × {b.largest}{scaled}"
    is_enough = a.abs_max * b.abs_max * (1.0 if value is None else value.abs_max) > case.limit
    return overflow(case, f"Largest {product}" if is_enough or added is None else f"Largest {added.largest} + {product}")


@explains("lerp")
def _interpolation(case: Case) -> Verdict | None:
    start, end, weight = case.operand("self"), case.operand("end", "tensors1"), case.operand("weight", "weights", "scalars")
    return overflow(case, f"Largest {start.largest} + {weight.largest} × ({end.largest} + {start.largest})")


@explains("mul", "multiply")
def _product(case: Case) -> Verdict | None:
    a, b = case.operand("self"), case.operand("other", "scalar", "scalars")
    return overflow(case, f"Largest {a.largest} × {b.largest}")


@explains("square", "pow", finite=True)
def _power(case: Case) -> Verdict | None:
    base, exponent = case.operand("self"), case.optional("exponent") or Range.of_value(2.0)
    if exponent.low < 0 and base.num_zero:
        detail = f"{of(base.num_zero, base.numel, 'bases')} 0, raised to {number(exponent.low)}."
        return Reason.DIVISION_BY_ZERO, detail, floored(case, base, exponent)
    if case.has_nan and base.low < 0:
        detail = f"Smallest base {number(base.low)} < 0 with exponent {number(exponent.high)}, which is not an integer."
        return Reason.DOMAIN, detail, f"{floored(case, base, exponent)} Or raise its magnitude and restore the sign."
    verdict = overflow(case, f"Largest {base.largest} to the power {number(exponent.high)}")
    if verdict is None or exponent.high <= 1:
        return verdict
    most = 10.0 ** math.floor(math.log10(case.limit) / (2 * exponent.high))  # its square, too, is to stay in range
    return verdict[0], verdict[1], f"{verdict[2]} A base within {most:g} stays in range: x.clamp({-most:g}, {most:g})."


def floored(case: Case, base: Range, exponent: Range) -> str:
    """Advice for a base that is 0 or negative; the bound keeps the power and its derivative in range."""
    return f"Keep the base away from 0: {case.wide(_away('x', case.eps(max(1 - exponent.low, 1.0)), base, case) + ' ** p')}."


def away_from_zero(case: Case, divisor: Range) -> str:
    """Advice for a divisor that is 0."""
    if divisor.name in case.values:
        return f"Keep the divisor away from 0, which is a Python number: x / max(y, {case.eps(2.0)})."
    return f"Keep the divisor away from 0: {case.wide('x / ' + _away('y', case.eps(2.0), divisor, case), 'y')}."


def _away(name: str, least: str, x: Range, case: Case) -> str:
    if case.op not in ("pow", "square") and x.low < 0:  # its sign counts
        return f"torch.where({name}.abs() < {least}, {least}, {{x}})"
    return f"{{x}}.clamp_min({least})"


@explains("add", "sub", "rsub", "add_relu")
def _sum_of_two(case: Case) -> Verdict | None:
    a, b = case.operand("self"), case.operand("other", "scalar", "scalars")
    alpha = case.optional("alpha")
    scaled = f"{b.largest} × {alpha.largest}" if alpha is not None else b.largest
    return overflow(case, f"Largest {a.largest} + {scaled}")


@explains("div", "divide", "true_divide", "reciprocal", "addcdiv", "fmod", "remainder", finite=True)
def _quotient(case: Case) -> Verdict | None:
    divisor = case.optional("self") if case.op == "reciprocal" else case.optional("other", "tensor2", "scalar", "scalars", "tensors2")
    if divisor is None:
        return _integer_quotient(case)
    if divisor.num_zero:
        nan = " (0/0 is nan)" if case.has_nan else ""
        detail = f"{of(divisor.num_zero, divisor.numel, 'divisors')} 0{nan}."
        return Reason.DIVISION_BY_ZERO, detail, away_from_zero(case, divisor)
    if not divisor.abs_min:
        return None
    top = "1" if case.op == "reciprocal" else f"Largest {case.operand('tensor1' if case.op == 'addcdiv' else 'self').largest}"
    verdict = overflow(case, f"{top} / smallest |{divisor.name}| {number(divisor.abs_min)}")
    if verdict is None or divisor.abs_min >= float(case.eps(2.0)):
        return verdict
    return verdict[0], verdict[1], away_from_zero(case, divisor)


def integer_divisor(case: Case) -> Operand | None:
    """The divisor, if it is a tensor of integers."""
    name = "self" if case.op == "reciprocal" else "other"
    whole = [o for o in case.inputs if o.numbers is None and o.value.startswith(("int", "uint", "bool"))]
    return next((o for o in whole if o.name.partition(" ")[0] == name), None)


def _integer_quotient(case: Case) -> Verdict | None:
    """Integers have no numbers on record. A magnitude of at least 1 makes no quotient larger, so one of them was 0."""
    divisor = integer_divisor(case)
    if divisor is None or case.output is None:
        return None
    bad = of(case.output.num_nonfinite, case.output.numel, "results")
    detail = f"{bad} a quotient by a 0 in {divisor.name}, {divisor.value}{' (0/0 is nan)' if case.has_nan else ''}."
    return Reason.DIVISION_BY_ZERO, detail, "Clamp the divisor, which is probably a count: x / count.clamp_min(1)."


@explains(
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "linear", "convolution", "_convolution",
    "convolution_overrideable", "mkldnn_convolution", "cudnn_convolution", "_scaled_mm", "mkldnn_rnn_layer",
    "convolution_backward", "addr", "matmul"
)  # fmt: skip
def _matrix_product(case: Case) -> Verdict | None:
    tensors = [o for o in case.inputs if o.numbers is not None]
    if case.nonfinite_input or len(tensors) < 2:
        return None
    a, b = _factors(case)
    if a is None or b is None:
        return overflow(case)
    product = f"Largest {a.largest} × {b.largest}"
    if a.abs_max * b.abs_max <= case.limit:
        product += ", summed over the inner dimension,"
    return overflow(case, product)


def _factors(case: Case) -> tuple[Range | None, Range | None]:
    """The first two tensors, in the order of the operation's schema, without one that is only added."""
    added = {"self", "input"} if case.op.startswith(("add", "badd")) else set()
    names = dict.fromkeys(o.name.partition(" ")[0].partition("[")[0] for o in case.inputs if o.numbers is not None)
    found = [*map(case.optional, [name for name in names if name not in added]), None, None]
    return found[0], found[1]


@explains(
    "sum", "mean", "cumsum", "nansum", "logcumsumexp", "norm", "linalg_vector_norm", "prod", "cumprod", "mse_loss",
    "smooth_l1_loss", "l1_loss", "huber_loss", "dist", "_cdist_forward", "index_add", "scatter_add", "embedding_dense_backward",
    "avg_pool2d", "_adaptive_avg_pool2d", finite=True
)  # fmt: skip
def _reduction(case: Case) -> Verdict | None:
    x = case.operand("src", "source", "self", "x1", "grad_output")
    if case.op in ("mean", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss") and x.numel == 0:
        return Reason.DIVISION_BY_ZERO, "The mean of no elements is 0/0.", "Skip empty batches, or divide by max(count, 1)."
    largest = max([x.abs_max, *(n.abs_max or 0.0 for n in case.tensors)])  # a loss has a target too
    by_dim = case.op in ("sum", "mean", "nansum", "norm", "linalg_vector_norm", "prod") and case.output is not None
    num = x.numel // max(case.output.numel, 1) if by_dim and case.output is not None else x.numel
    return overflow(case, f"The {case.op} of {num} elements of magnitude up to {number(largest)}")


@explains("var", "std", "var_mean", "std_mean", finite=True)
def _spread(case: Case) -> Verdict | None:
    x = case.operand("self")
    if case.output is None:
        return None
    correction = case.optional("correction")
    degrees = x.numel / max(case.output.numel, 1) - (correction.high if correction is not None else 1)
    if degrees <= 0:
        detail = f"{case.op} over {count(x.numel // max(case.output.numel, 1), 'element')} has no degrees of freedom: 0/0."
        return Reason.DIVISION_BY_ZERO, detail, "Use correction=0 (unbiased=False), or more than one element."
    return overflow(case, f"Largest {x.largest} squared")


@explains(
    "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "_fused_rms_norm", "rms_norm",
    "cudnn_batch_norm", "_batch_norm_with_update", "_native_batch_norm_legit_functional", finite=True
)  # fmt: skip
def _normalization(case: Case) -> Verdict | None:
    x, eps = case.operand("input"), case.optional("eps")
    if eps is not None and eps.high == 0:
        return Reason.DIVISION_BY_ZERO, "The variance of a row is 0 and eps is 0.", "Give the normalization a positive eps (1e-5)."
    variance = case.optional("running_var")
    if variance is not None and variance.low < 0:
        advice = "Check how the running statistics were loaded or averaged."
        return Reason.DOMAIN, f"Smallest running variance {number(variance.low)} < 0.", advice
    return overflow(case, f"Largest {x.largest} squared")


@explains("_weight_norm_interface", "_weight_norm", finite=True)
def _weight_norm(case: Case) -> Verdict | None:
    if not case.operand("v").num_zero:
        return None
    detail = "A row of the weight's direction v is all 0, and is divided by its norm, 0."
    return Reason.DIVISION_BY_ZERO, detail, "Initialize v with small random values, and never write zeros to it."


@explains("linalg_inv_ex", "_linalg_solve_ex", "linalg_lu_factor_ex", "linalg_solve_triangular", "_linalg_det", "linalg_cholesky_ex",
          finite=True)  # fmt: skip
def _singular(case: Case) -> Verdict | None:
    detail = f"The matrix is singular, or too close to it for {case.dtype}: {case.op} divides by a pivot of 0."
    return Reason.DIVISION_BY_ZERO, detail, "Add a small multiple of the identity first, or use torch.linalg.pinv or lstsq."


@explains("_to_copy", "copy", "to", "_foreach_copy", finite=True)
def _cast(case: Case) -> Verdict | None:
    x = case.operand("self", "src")
    source = case.tensors[0].dtype if case.tensors else ""
    if source == case.dtype:
        return None
    if case.dtype.startswith("float8"):
        detail = f"Largest {x.largest} of {source} exceeds {case.dtype}'s maximum {number(case.limit)}."
        return Reason.OVERFLOW, detail, "Scale before the cast (amax scaling) and clamp to the format's maximum."
    verdict = overflow(case, f"Cast from {source}: largest {x.largest}")
    if verdict is None:
        return None
    autocast = f" (where autocast casts: {in_float32(case)})" if case.module else ""
    other = ", cast to bfloat16, whose range is float32's," if case.dtype == "float16" else ""
    return verdict[0], verdict[1], f"Leave it in {source}{autocast}{other} or scale it down before the cast."
