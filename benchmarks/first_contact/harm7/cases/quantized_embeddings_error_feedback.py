"""Per-tensor and per-channel quantized tensors, fake quantization with learned scales, quantized embedding bags, 8-bit states and error feedback outside the model must keep codes, scales, residuals and error texts."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")


class Q8(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s.update(q=torch.quantize_per_tensor(torch.zeros_like(p), 1e-8, 0, torch.qint8), err=torch.zeros_like(p))
                mom = s["q"].dequantize().mul_(0.9).add_(p.grad)
                full = mom + s["err"]
                scale = float(full.abs().max().clamp(min=1e-8) / 127)
                s["q"] = torch.quantize_per_tensor(full, scale, 0, torch.qint8)
                torch.sub(full, s["q"].dequantize(), out=s["err"])
                p.sub_(s["q"].dequantize(), alpha=g["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l, self.scale, self.zero = nn.EmbeddingBag(20, 8, mode="sum"), nn.Linear(8, 4), nn.Parameter(torch.tensor([0.05])), nn.Parameter(torch.tensor([0.0]))
        self.cs = nn.Parameter(torch.full((4,), 0.05))

    def forward(self, t):
        h = torch._fake_quantize_learnable_per_tensor_affine(self.e(t), self.scale, self.zero, -128, 127, 1.0)
        w = torch._fake_quantize_learnable_per_channel_affine(self.l.weight, self.cs, torch.zeros(4), 0, -128, 127, 1.0)
        return F.linear(h, w, self.l.bias)


torch.manual_seed(0)
m = Net()
W(m)
opt = Q8(m.parameters(), dict(lr=0.05))
for s in range(5):
    t = torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(s))
    _, y = batch(s)
    loss = F.mse_loss(m(t), y)
    m.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), [(H(v["q"].int_repr()), v["q"].q_scale(), H(v["err"]), v["err"]._version) for v in opt.state.values()])
    with torch.no_grad():
        w = torch.quantize_per_channel(m.l.weight, m.cs.abs().double(), torch.zeros(4, dtype=torch.long), 0, torch.qint8)
        x = torch.quantize_per_tensor(m.e(t), 0.05, 3, torch.quint8)
        print(s, H(w.int_repr()), w.q_per_channel_axis(), H(w.dequantize()), x.q_zero_point(), H(x.int_repr()), x.stride(), H(torch.relu(x).int_repr()), H(x[:2].clone().int_repr()), H(x.view(-1, 2).dequantize()), x.qscheme(), H(torch.cat([x, x]).int_repr()), x._version, H(x.sort(1)[0].dequantize()))
        packed = torch.ops.quantized.embedding_bag_byte_prepack(m.e.weight)
        print(s, H(packed), H(torch.ops.quantized.embedding_bag_byte_unpack(packed)), H(torch.fake_quantize_per_tensor_affine(m.l.weight, 0.1, 0, -8, 7)), H(torch.quantize_per_tensor_dynamic(m.l.weight, torch.qint8, False).int_repr()), H(x.max().dequantize()), bool(torch.equal(x, x.clone())))
        dyn = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear}, torch.qint8) if s == 0 else dyn
        print(s, H(dyn(m.e(t)).isfinite()))
        for f in (lambda: x + 1.5, lambda: x @ x.T, lambda: x.mul_(2), lambda: torch.quantize_per_tensor(torch.ones(2, dtype=torch.long), 0.1, 0, torch.qint8)):
            try:
                r = f()
                print(s, "ok", H(r.dequantize()))
            except Exception as e:
                print(s, type(e).__name__, str(e).splitlines()[0][:100])
