# what: evaluation copies in mkldnn layout, dynamically quantized, and quantized tensors, between training steps
# cmp: status stdout files left
# PRELUDE
import copy
from torch.utils import mkldnn as mu
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
class Q(nn.Module):
    def __init__(self): super().__init__(); self.s = nn.Sequential(nn.Identity(), nn.Identity())
    def forward(self, x): return self.s(x)
q = Q()
for s in range(3):
    print(train(model, opt, 3, 3 * s)); x = batch(30)[0]
    with torch.no_grad():
        e = copy.deepcopy(model).eval(); mm = mu.to_mkldnn(copy.deepcopy(e)); print(H(mm(x.to_mkldnn()).to_dense()))
        d = torch.ao.quantization.quantize_dynamic(e, {nn.Linear}, dtype=torch.qint8); print(H(d(x)))
        qt = torch.quantize_per_tensor(x, .05, 3, torch.quint8); print(H(q(qt).dequantize(), q(qt).int_repr()), q(x.to_sparse_csr()).layout, q(x.to(torch.float8_e4m3fn)).dtype, q(x.to_mkldnn()).layout)
        print(H(q(torch.quantize_per_channel(x, torch.rand(8) * .1 + .01, torch.zeros(8), 1, torch.qint8)).dequantize()))
print(M(model), R())
