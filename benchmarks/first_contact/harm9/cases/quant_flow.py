"""Quantization-aware training: observers whose buffers begin at inf and -inf, fake quantization, quantized tensors as inputs and outputs, int8 weights unpacked in forward."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from torch.ao.quantization import MovingAverageMinMaxObserver, HistogramObserver, FakeQuantize, MinMaxObserver
seed(91)


class QLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.l = nn.Linear(i, o)
        self.aq = FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
        self.wq = FakeQuantize(observer=MinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)

    def forward(self, x):
        return F.linear(self.aq(x), self.wq(self.l.weight), self.l.bias)


class Int8(nn.Module):
    def __init__(self, l):
        super().__init__()
        s = l.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("w", (l.weight.detach() / s).round().to(torch.int8))
        self.register_buffer("s", s)
        self.lora = nn.Parameter(torch.zeros_like(l.weight))

    def forward(self, x):
        return F.linear(x, self.w.to(x.dtype) * self.s + self.lora)


net = nn.Sequential(QLinear(6, 16), nn.ReLU(), QLinear(16, 16), nn.ReLU(), Int8(nn.Linear(16, 3)))
spare = HistogramObserver()
net.spare = spare
net.forward = (lambda f: lambda x: f(x))(lambda x: net[4](net[3](net[2](net[1](net[0](x))))))
watch(net)
print({k: dig(v) for k, v in net.state_dict().items() if "min" in k or "max" in k}, int(sum(v.isinf().sum() for v in net.state_dict().values() if v.is_floating_point())))
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for step in range(15):
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    if step == 10:
        net[0].aq.disable_observer(); net[2].wq.disable_observer()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        q = torch.quantize_per_tensor(net[0](x), 0.05, 10, torch.quint8)
        r = torch.relu(q) if False else q.dequantize()
        qc = torch.quantize_per_channel(net[0].l.weight, torch.rand(16) * 0.1 + 0.01, torch.zeros(16).long(), 0, torch.qint8)
        net[4].lora.data.clamp_(-1, 1)
    print(step, dig(loss, r, qc.int_repr()), repr(net[0].aq.scale.item()))
end(net, opt)
