"""FX graph-mode QAT (prepare_qat_fx, convert_fx), a WeightNormSparsifier with squash_mask, LTQ-like learned scales by a custom fake-quantize Function: buffers, graph code, int8 outputs."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")
from torch.ao.pruning import WeightNormSparsifier
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
m = net(1)
q = prepare_qat_fx(m.train(), get_default_qat_qconfig_mapping("fbgemm"), (batch(0)[0],))
W(q)
print(train(q, torch.optim.SGD(q.parameters(), 0.05), 5), q.code.count("activation_post_process"), H(dict(q.state_dict())))
c = convert_fx(q.eval())
print(H(c(batch(3)[0])), [n.op for n in c.graph.nodes])
m = net(2)
sp = WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 4), zeros_per_block=4)
sp.prepare(m, [{"tensor_fqn": "2.weight"}])
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    l = train(m, opt, 2, first=2 * s)
    sp.step()
sp.squash_mask()
print(l, float((m[2].weight == 0).float().mean()), H(dict(m.state_dict())))


class LSQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.s, self.l = nn.Parameter(torch.tensor(0.05)), nn.Linear(8, 4)

    def forward(self, x):
        w = torch._fake_quantize_learnable_per_tensor_affine(self.l.weight, self.s[None], torch.zeros(1), -8, 7, 0.1)
        return F.linear(x, w, self.l.bias)


torch.manual_seed(5)
m = LSQ()
W(m)
print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 5), M(m))
