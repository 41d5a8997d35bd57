"""The rules for forward operations: one small function a family of operators, registered right above itself."""

from __future__ import annotations

import math

from numscope.records.finding import Reason
from numscope.replay.reasons.case import Case, Range, Verdict, attribute, explains, number, of, overflow


def first(case: Case, *names: str) -> Range | None:
    """The first of these arguments that is there."""
    return next((r for r in map(case.operand, names) if r is not None), None)


# ---- products, sums, quotients


@explains("mul", "multiply", "addcmul")
def _product(case: Case) -> Verdict | None:
    a, b = first(case, "self", "tensor1"), first(case, "other", "tensor2", "scalar", "scalars", "tensors2")
    if a is None or b is None or case.nonfinite_input:
        return None
    return overflow(case, f"Largest |self| {number(a.abs_max)} × |other| {number(b.abs_max)}")


@explains("square", "pow")
def _power(case: Case) -> Verdict | None:
    base, exponent = case.operand("self"), case.operand("exponent") or Range.of_value(2.0)
    if base is None or case.nonfinite_input:
        return None
    if exponent.low < 0 and base.num_zero:
        return (
            Reason.DIVISION_BY_ZERO,
            f"{of(base.num_zero, base.numel, 'bases')} 0, raised to {number(exponent.low)}.",
            "Add a small eps to the base or clamp it away from 0.",
        )
    if case.has_nan and base.low < 0:
        return (
            Reason.DOMAIN,
            f"Smallest base {number(base.low)} < 0 with exponent {number(exponent.high)}, which is no integer.",
            "Clamp the base to >= 0, or raise its magnitude and put the sign back.",
        )
    return overflow(case, f"Largest |base| {number(base.abs_max)} to the power {number(exponent.high)}")


@explains("add", "sub", "rsub", "add_relu")
def _sum_of_two(case: Case) -> Verdict | None:
    a, b = case.operand("self"), first(case, "other", "scalar", "scalars")
    if a is None or b is None:
        return None
    if case.nonfinite_input and case.has_nan:
        return (
            Reason.INF_MINUS_INF,
            f"self holds {a.num_inf} infinities, other {b.num_inf}; where they meet with opposite sign the result is nan.",
            "Write masks with masked_fill and a large finite number (torch.finfo(dtype).min), not by arithmetic with inf.",
        )
    if case.nonfinite_input:
        return None
    alpha = case.operand("alpha")
    scaled = f"{number(alpha.abs_max)} × {number(b.abs_max)}" if alpha is not None else number(b.abs_max)
    return overflow(case, f"Largest |self| {number(a.abs_max)} + |other| {scaled}")


@explains("div", "divide", "true_divide", "reciprocal", "addcdiv", "fmod", "remainder")
def _quotient(case: Case) -> Verdict | None:
    divisor = case.operand("self") if case.op == "reciprocal" else first(case, "other", "tensor2", "scalar", "scalars", "tensors2")
    top = Range.of_value(1.0) if case.op == "reciprocal" else case.operand("tensor1" if case.op == "addcdiv" else "self")
    if case.nonfinite_input:
        return None
    if divisor is None:
        return _integer_quotient(case)
    if divisor.num_zero:
        nan = " (0/0 is nan)" if case.has_nan else ""
        return (
            Reason.DIVISION_BY_ZERO,
            f"{of(divisor.num_zero, divisor.numel, 'divisors')} 0{nan}.",
            "Add a small eps to the divisor, or clamp it: x / y.clamp_min(eps).",
        )
    if top is None or not divisor.abs_min:
        return None
    return overflow(case, f"Largest |dividend| {number(top.abs_max)} / smallest |divisor| {number(divisor.abs_min)}")


def _integer_quotient(case: Case) -> Verdict | None:
    """Integers have no row of numbers; but a magnitude of at least 1 makes no quotient larger, so one of them was 0."""
    name = "self" if case.op == "reciprocal" else "other"
    divisor = next((o for o in case.inputs if o.numbers is None and o.name == name and o.value.startswith(("int", "uint", "bool"))), None)
    if divisor is None or case.output is None:
        return None
    bad = of(case.output.num_nonfinite, case.output.numel, "results")
    return (
        Reason.DIVISION_BY_ZERO,
        f"{bad} divided by a 0 of {divisor.name}, {divisor.value}{' (0/0 is nan)' if case.has_nan else ''}.",
        "Clamp the count that is divided by: x / count.clamp_min(1).",
    )


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
    product = f"Largest |{a[0]}| {number(a[1].abs_max)} × |{b[0]}| {number(b[1].abs_max)}"
    if a[1].abs_max * b[1].abs_max <= case.limit:
        product += ", summed over the inner dimension,"
    return overflow(case, product)


def _factors(case: Case) -> tuple[tuple[str, Range] | None, tuple[str, Range] | None]:
    added = first(case, "mat1", "batch1", "vec1") is not None  # then self is only added
    left = ("mat1", "batch1", "mat", "vec1", "grad_output") if added else ("self", "input", "grad_output")
    right = ("mat2", "batch2", "vec", "vec2", "tensor", "other", "weight", "input")
    found: list[tuple[str, Range] | None] = []
    for names in (left, right):
        taken = {f[0] for f in found if f is not None}
        found.append(next(((n, r) for n in names if n not in taken and (r := case.operand(n)) is not None), None))
    return found[0], found[1]


@explains(
    "sum", "mean", "cumsum", "nansum", "logcumsumexp", "norm", "linalg_vector_norm", "prod", "cumprod", "mse_loss",
    "smooth_l1_loss", "l1_loss", "huber_loss", "dist", "_cdist_forward", "index_add", "scatter_add", "embedding_dense_backward",
    "avg_pool2d", "_adaptive_avg_pool2d"
)  # fmt: skip
def _reduction(case: Case) -> Verdict | None:
    x = first(case, "src", "source", "self", "x1", "grad_output")
    if x is None or case.nonfinite_input:
        return None
    if case.op in ("mean", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss") and x.numel == 0:
        return Reason.DIVISION_BY_ZERO, "The mean of no element is 0/0.", "Skip empty batches, or divide by max(count, 1)."
    largest = max([x.abs_max, *(n.abs_max or 0.0 for n in case.tensors)])  # a loss has a target too
    return overflow(case, f"The {case.op} of {x.numel} elements of magnitude up to {number(largest)}")


@explains("var", "std", "var_mean", "std_mean")
def _spread(case: Case) -> Verdict | None:
    x = case.operand("self")
    if x is None or case.nonfinite_input or case.output is None:
        return None
    correction = case.operand("correction")
    degrees = x.numel / max(case.output.numel, 1) - (correction.high if correction is not None else 1)
    if degrees <= 0:
        return (
            Reason.DIVISION_BY_ZERO,
            f"{case.op} over {x.numel // max(case.output.numel, 1)} element(s) has no degree of freedom: 0/0.",
            "Use correction=0 (unbiased=False), or more than one element.",
        )
    return overflow(case, f"Largest |element| {number(x.abs_max)} squared")


@explains(
    "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "_fused_rms_norm", "rms_norm",
    "cudnn_batch_norm", "_batch_norm_with_update", "_native_batch_norm_legit_functional"
)  # fmt: skip
def _normalization(case: Case) -> Verdict | None:
    x, eps = case.operand("input"), case.operand("eps")
    if x is None or case.nonfinite_input:
        return None
    if eps is not None and eps.high == 0:
        return Reason.DIVISION_BY_ZERO, "The variance of a row is 0 and eps is 0.", "Give the normalization a positive eps (1e-5)."
    variance = first(case, "running_var")
    if variance is not None and variance.low < 0:
        advice = "Check how the running statistics were loaded or averaged."
        return Reason.DOMAIN, f"Smallest running variance {number(variance.low)} < 0.", advice
    return overflow(case, f"Largest |input| {number(x.abs_max)} squared")


@explains("_weight_norm_interface", "_weight_norm")
def _weight_norm(case: Case) -> Verdict | None:
    direction = case.operand("v")
    if direction is None or case.nonfinite_input or not direction.num_zero:
        return None
    return (
        Reason.DIVISION_BY_ZERO,
        "A row of the weight's direction v is 0 throughout: it is divided by its norm 0.",
        "Start v from small random values, and never write zeros to it.",
    )


@explains("linalg_inv_ex", "_linalg_solve_ex", "linalg_lu_factor_ex", "linalg_solve_triangular", "_linalg_det", "linalg_cholesky_ex")
def _singular(case: Case) -> Verdict | None:
    if case.nonfinite_input:
        return None
    return (
        Reason.DIVISION_BY_ZERO,
        f"The matrix is singular, or so nearly that {case.dtype} can't tell: {case.op} divides by a pivot of 0.",
        "Add a small multiple of the identity before, or use torch.linalg.pinv or lstsq.",
    )


# ---- functions with a domain


DOMAINS: dict[str, tuple[float, float, bool, str]] = {  # op: lowest, highest, whether the ends are inside, advice
    "log": (0.0, math.inf, False, "Clamp the argument: torch.log(x.clamp_min(eps)); for log(softmax(x)) use F.log_softmax."),
    "log2": (0.0, math.inf, False, "Clamp the argument: torch.log2(x.clamp_min(eps))."),
    "log10": (0.0, math.inf, False, "Clamp the argument: torch.log10(x.clamp_min(eps))."),
    "log1p": (-1.0, math.inf, False, "Keep the argument above -1: torch.log1p(x.clamp_min(-1 + eps))."),
    "logit": (0.0, 1.0, False, "Give logit an eps: torch.logit(p, eps=1e-6)."),
    "sqrt": (0.0, math.inf, True, "Clamp the argument to >= 0 before the root: rounding can make a variance negative."),
    "acos": (-1.0, 1.0, True, "Clamp the argument to [-1, 1]: rounding can carry a cosine beyond."),
    "asin": (-1.0, 1.0, True, "Clamp the argument to [-1, 1]."),
    "atanh": (-1.0, 1.0, False, "Clamp the argument to within (-1, 1)."),
    "acosh": (1.0, math.inf, True, "Clamp the argument to >= 1."),
    "lgamma": (0.0, math.inf, False, "lgamma has poles at 0 and the negative integers: clamp the argument above 0."),
    "digamma": (0.0, math.inf, False, "digamma has poles at 0 and the negative integers: clamp the argument above 0."),
    "special_log_ndtr": (-math.inf, math.inf, True, "Clamp the argument."),
    "erfinv": (-1.0, 1.0, False, "Clamp the argument to within (-1, 1)."),
    "special_ndtri": (0.0, 1.0, False, "Clamp the argument to within (0, 1)."),
}


def _outside(case: Case, x: Range, op: str) -> Verdict | None:
    low, high, inside, advice = DOMAINS[op]
    # nan comes of what lies beyond an end; at an open end itself the result is infinite
    if x.low < low or (not inside and (x.low == low or (low == 0 and x.num_zero))):
        value = min(x.low, low)
        bound = f" < {number(low)}" if value < low else ""
    elif x.high > high or (not inside and x.high == high):
        value = x.high
        bound = f" > {number(high)}" if value > high else ""
    else:
        return None
    zeros = f"; {of(x.num_zero, x.numel, 'arguments')} 0" if x.num_zero and low == 0 else ""
    extreme = "Smallest" if value <= low else "Largest"
    return Reason.DOMAIN, f"{extreme} argument of {op} is {number(value, low if value <= low else high)}{bound}{zeros}.", advice


@explains(*DOMAINS)
def domain(case: Case) -> Verdict | None:
    x = first(case, "self", "input")
    return _outside(case, x, case.op) if x is not None else None


@explains("xlogy", "special_xlogy", "special_xlog1py", "binary_cross_entropy")
def x_log_y(case: Case) -> Verdict | None:
    y = case.operand("self") if case.op == "binary_cross_entropy" else case.operand("other")
    return _outside(case, y, "log1p" if case.op == "special_xlog1py" else "log") if y is not None else None


@explains("rsqrt")
def _inverse_root(case: Case) -> Verdict | None:
    x = case.operand("self")
    if x is None:
        return None
    if case.has_nan and x.low < 0:
        advice = "Clamp the argument to >= 0 and add eps: rounding can make a variance negative."
        return Reason.DOMAIN, f"Smallest argument of rsqrt is {number(x.low)} < 0.", advice
    if x.num_zero:
        advice = "Add eps inside the root: torch.rsqrt(x + eps)."
        return Reason.DIVISION_BY_ZERO, f"{of(x.num_zero, x.numel, 'arguments of rsqrt')} 0.", advice
    return None


@explains("exp", "exp2", "expm1", "sinh", "cosh", "special_expit", "softplus", "elu", "logaddexp")
def exponential(case: Case) -> Verdict | None:
    x = case.operand("self")
    even = case.op in ("sinh", "cosh")
    # a masked score's -inf gives 0 here and explains nothing
    if x is None or case.has_nan or any(n.num_nan or n.num_pos_inf or (even and n.num_neg_inf) for n in case.tensors):
        return None
    largest = x.abs_max if even else x.high
    bound = math.log2(case.limit) if case.op == "exp2" else math.log(case.limit)
    return (
        Reason.EXP_OVERFLOW,
        f"Largest argument of {case.op} {number(largest)}; {case.dtype} holds results up to {number(bound)}.",
        "Subtract the maximum first (softmax, logsumexp), use F.softplus or log-probabilities, or clamp the argument.",
    )


# ---- softmax, attention, losses


@explains(
    "_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax", "logsumexp",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable"
)  # fmt: skip
def _softmax(case: Case) -> Verdict | None:
    masked = [n for n in case.tensors if n.num_neg_inf]
    if masked and case.has_nan:
        return (
            Reason.INF_MINUS_INF,
            f"A row is -inf throughout ({masked[0].num_neg_inf} of {masked[0].numel} entries are): -inf minus its maximum -inf is nan.",
            "Leave an entry of each row unmasked, or mask with a large finite number (torch.finfo(dtype).min) and zero such rows after.",
        )
    if any(n.num_pos_inf for n in case.tensors):
        advice = "Find where the scores became inf: clamp or scale them before the softmax."
        return Reason.INF_MINUS_INF, "inf minus the row's maximum inf is nan.", advice
    return None


@explains("nll_loss_forward", "nll_loss2d_forward", "cross_entropy_loss", "nll_loss_nd")
def _negative_log_likelihood(case: Case) -> Verdict | None:
    total = case.outputs[1].numbers if len(case.outputs) > 1 else None
    if case.has_nan and total is not None and total.num_zero:
        return (
            Reason.DIVISION_BY_ZERO,
            "No target counts (all are ignore_index, or weigh 0): the mean is 0/0.",
            "Skip such a batch, or use reduction='sum' and divide by max(count, 1).",
        )
    if case.nonfinite_input:
        return (
            Reason.UNKNOWN,
            "The log-probability of a target is -inf.",
            "A target points at a masked class: unmask it or ignore that position (ignore_index).",
        )
    return None


@explains("_ctc_loss", "_cudnn_ctc_loss", "ctc_loss")
def _alignment(case: Case) -> Verdict | None:
    if case.nonfinite_input:
        return None
    return (
        Reason.DOMAIN,
        "A target has no alignment with its input: it is longer, counting a step more between two equal labels.",
        "Drop or lengthen such examples, or use zero_infinity=True.",
    )


# ---- casts


@explains("_to_copy", "copy", "to", "_foreach_copy")
def _cast(case: Case) -> Verdict | None:
    x = first(case, "self", "src")
    source = case.tensors[0].dtype if case.tensors else ""
    if x is None or case.nonfinite_input or source == case.dtype:
        return None
    if case.dtype.startswith("float8"):
        return (
            Reason.OVERFLOW,
            f"Largest |value| {number(x.abs_max)} of {source} exceeds {case.dtype}'s maximum {number(case.limit)}.",
            "Scale before the cast (amax scaling) and clamp to the format's maximum.",
        )
    verdict = overflow(case, f"Cast from {source}: largest |value| {number(x.abs_max)}")
    if verdict is None:
        return None
    autocast = f" (where autocast casts: numscope.high_precision({attribute(case.module)}))" if case.module else ""
    other = ", cast to bfloat16, whose range is float32's," if case.dtype == "float16" else ""
    return verdict[0], verdict[1], f"Leave it in {source}{autocast}{other} or scale it down before the cast."
