"""timm's models, losses, optimizers and averages on CPU, where torchvision, which timm asks for, can be imported beside this torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import numscope
from numscope.records.errors import NonFiniteError
from tests.integrations.torchvision import stand_in

stand_in()
timm = pytest.importorskip("timm", reason="timm asks for torchvision, which PyPI builds for CUDA's torch alone", exc_type=ImportError)


def trained(worst: float, watched: bool = True) -> tuple[Any, Any]:
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=4, pretrained=False)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    ema = ModelEmaV3(model)
    pixels = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    pixels[4] *= worst
    scope = numscope.watch(model) if watched else None
    for images, labels in zip(pixels.split(2), torch.arange(8).remainder(4).split(2), strict=True):
        loss = LabelSmoothingCrossEntropy()(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    if scope is not None:
        scope.close()
    return scope, model


def test_models_and_optimizers_train_the_same_and_an_overflow_is_named_in_timms_own_line():
    _, bare = trained(1.0, watched=False)
    scope, model = trained(1.0)
    assert (scope.num_steps, scope.findings) == (4, [])
    assert all(torch.equal(a, b) for a, b in zip(bare.state_dict().values(), model.state_dict().values(), strict=True))
    with pytest.raises(NonFiniteError) as error:
        trained(3e38)
    finding = error.value.finding
    assert finding.step == 2 and "timm" in finding.culprit.file and finding.culprit.line
