"""LayerNorm and RMSNorm, on their own and as parts of the fused modules."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.modules.parts import FusedPart, NamedModule, as_activation
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError

NORMALIZATIONS = ("LayerNorm", "RMSNorm")


def normalize(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, normalization: str, zero_centered_gamma: bool) -> Tensor:
    """Normalize over the last dimension, in the wider dtype of x and weight; the result has x's dtype.

    The 1 of ``zero_centered_gamma`` is added in at least float32: in bfloat16, a weight below 0.004 would be lost.
    """
    shape, dtype = weight.shape, x.dtype
    if zero_centered_gamma:
        wide = torch.promote_types(weight.dtype, torch.float32)
        weight = 1 + weight.to(wide)
        bias = None if bias is None else bias.to(wide)
    if weight.dtype != dtype:
        wide = torch.promote_types(weight.dtype, dtype)
        x, weight = x.to(wide), weight.to(wide)
        bias = None if bias is None else bias.to(wide)
    out = F.layer_norm(x, shape, weight, bias, eps) if normalization == "LayerNorm" else F.rms_norm(x, shape, weight, eps)
    return out.to(dtype)


class NormPart(FusedPart):
    """The norm of a fused module. It borrows ``layer_norm_weight`` and ``layer_norm_bias``."""

    def __init__(self, eps: float, normalization: str, zero_centered_gamma: bool, name: str | None) -> None:
        super().__init__({key: f"layer_norm_{key}" for key in ("weight", "bias")[: 2 if normalization == "LayerNorm" else 1]}, name)
        self.eps = eps
        self.normalization = normalization
        self.zero_centered_gamma = zero_centered_gamma

    def forward(self, x: Tensor) -> Tensor:
        weight = self.parameter("weight")
        assert weight is not None
        return normalize(x, weight, self.parameter("bias"), self.eps, self.normalization, self.zero_centered_gamma)


class FusedModule(NamedModule):
    """A module of a norm and of GEMMs that take its output. It owns the parameters of its parts.

    Args:
        size: of the last dimension.
        name: the module's; ``<name>.layer_norm`` is the norm's.
        others: as for the modules.
    """

    _numscope_stand_in: str | None = None  # the part that has this module's own layer name, if there is one

    def __init__(
        self, size: int, eps: float, normalization: str, zero_centered_gamma: bool, return_bias: bool, return_layernorm_output: bool,
        device: torch.device | str | None, dtype: torch.dtype | None, name: str | None, others: Mapping[str, object],
    ) -> None:  # fmt: skip
        super().__init__(name, device, dtype, others)
        check_one_of(f"{type(self).__name__}: normalization", normalization, NORMALIZATIONS)
        self.eps = eps
        self.normalization = normalization
        self.zero_centered_gamma = zero_centered_gamma
        self.return_bias = return_bias
        self.return_layernorm_output = return_layernorm_output
        self.add_norm("layer_norm_", size, normalization, zero_centered_gamma)
        self.layer_norm = NormPart(eps, normalization, zero_centered_gamma, self.named("layer_norm"))

    @property
    def _numscope_lent(self) -> frozenset[str]:
        """Its parameters that count as a part's."""
        return frozenset(name for part in self.children() if isinstance(part, FusedPart) for name in part.borrowed.values())

    def bind(self) -> None:
        """Make the parts its own. Call it when all parts are there; copies do so themselves."""
        for part in self.children():
            if isinstance(part, FusedPart):
                part._whole = weakref.ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.bind()

    def returned(self, out: Tensor, bias: Tensor | None, normed: Tensor) -> Tensor | tuple[Tensor | None, ...]:
        """Returns the output, then, if wanted, the bias and the norm's output."""
        more: tuple[Tensor | None, ...] = (as_activation(bias, normed),) if self.return_bias else ()
        more = (*more, normed) if self.return_layernorm_output else more
        return (out, *more) if more else out


class _Norm(NamedModule):
    """Base of LayerNorm and RMSNorm."""

    normalization: str
    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        *,
        zero_centered_gamma: bool = False,
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, device, params_dtype)
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if len(shape) != 1:
            raise UsageError(f"{type(self).__name__}: normalized_shape: got {shape}, expected one number, the last dimension's size.")
        self.eps = eps
        self.zero_centered_gamma = zero_centered_gamma
        self.add_norm("", shape[0], self.normalization, zero_centered_gamma)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, self.weight, self.bias, self.eps, self.normalization, self.zero_centered_gamma)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"


class LayerNorm(_Norm):
    """Layer normalization of the last dimension, with weight and bias.

    Args:
        normalized_shape: size of the last dimension.
        eps: added to the variance.
        zero_centered_gamma: the weight starts at 0, and the factor is ``1 + weight``.
        params_dtype: of the parameters; None: torch's default.
        device: None: torch's default device if one is set, else CUDA if available.
        name: the layer's name in configurations.

    Raises: UsageError: more than one dimension.

    *Source:* Ba, Kiros and Hinton, Layer Normalization, 2016.
    """

    normalization = "LayerNorm"


class RMSNorm(_Norm):
    """Root-mean-square normalization of the last dimension, with a weight and no bias.

    Args:
        normalized_shape, zero_centered_gamma, params_dtype, device, name: as for ``LayerNorm``.
        eps: added to the mean square.

    Raises: UsageError: more than one dimension.

    *Source:* Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """

    normalization = "RMSNorm"
