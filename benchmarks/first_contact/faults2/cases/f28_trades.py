"""yaodongyu/TRADES#30: kl_div's gradient for a target probability of exactly 0
TRUTH op=aten.log|aten.mul|aten.xlogy|aten._softmax_backward_data|aten.add reason=argument outside the function's domain|0 * inf|gradient phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torchvision.models import mobilenet_v3_small
net = mobilenet_v3_small(num_classes=4); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(3):
    x, y = torch.randn(4, 3, 32, 32), torch.randint(0, 4, (4,))
    xa = (x + 0.03 * torch.randn_like(x)).clamp(-3, 3)
    nat = net(x) * (1.0 if step < 1 else 4000.0)
    p = F.softmax(nat, 1)
    if CURED: p = p.clamp(min=1e-8)
    rob = F.kl_div(F.log_softmax(net(xa), 1), p, reduction="batchmean")  # FAULT
    loss = F.cross_entropy(nat / (1.0 if step < 1 else 4000.0), y) + 6 * rob; opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
