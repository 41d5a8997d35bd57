"""Quantization-aware training, converted; a dynamic quantized copy in mid-run; outputs are quantized tensors.

source: pytorch/pytorch#20402 (quantization beside pruning), pytorch docs "QAT eager mode"
"""
import warnings
warnings.simplefilter("ignore")
import copy
import torch
from torch import nn
from torch.ao import quantization as tq
from fcw import rng, say, seed, sha, watch

seed(17)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.conv, self.relu, self.fc = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Linear(3 * 36, 4)

    def forward(self, x):
        return self.dequant(self.fc(self.relu(self.conv(self.quant(x))).flatten(1)))


net = Net().train()
torch.backends.quantized.engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
net.qconfig = tq.get_default_qat_qconfig(torch.backends.quantized.engine)
net.conv.qconfig = net.qconfig
qat = tq.prepare_qat(net)
watch(qat)
opt = torch.optim.SGD(qat.parameters(), 0.05)
for step in range(5):
    loss = nn.functional.cross_entropy(qat(torch.randn(4, 1, 8, 8)), torch.randint(0, 4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex())
done = tq.convert(copy.deepcopy(qat).eval())
watch(done)
say(sha(done(torch.ones(2, 1, 8, 8))), type(done.conv).__name__)
dyn = tq.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), {nn.Linear}, dtype=torch.qint8)
say(sha(dyn(torch.linspace(-1, 1, 16).view(2, 8))), sha([v for v in qat.state_dict().values() if isinstance(v, torch.Tensor)]), rng())
