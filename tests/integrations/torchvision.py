"""torchvision beside a torch that its compiled operators were not built for."""

from __future__ import annotations

from importlib.util import find_spec

import torch


def stand_in() -> None:
    """Declare the operators that torchvision asks for as it is imported; nobody here calls them."""
    for name in ("nms", "qnms") if find_spec("torchvision") else ():
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
