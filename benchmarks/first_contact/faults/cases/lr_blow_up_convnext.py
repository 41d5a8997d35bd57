"""A ConvNeXt of timm trained with a learning rate of 1e19: its weights are finite but huge after a step or two.
Source: leondgarse/keras_cv_attention_models#129 (ConvNeXt nan at too high a learning rate), here timm's."""
import sys
import timm
import torch

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = timm.create_model("convnext_atto", num_classes=4, depths=(1, 1, 1, 1), dims=(8, 16, 16, 16))
opt = torch.optim.SGD(net.parameters(), lr=1e-3 if CURED else 1e19)
for step in range(4):
    x, y = torch.randn(2, 3, 64, 64), torch.randint(4, (2,))
    loss = torch.nn.functional.cross_entropy(net(x), y)  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
