"""Module inputs, outputs and buffers of float8 (four kinds), e8m0, float4 pairs, complex32, uint16/32/64, quint8 and bool: healthy, seen by every module, training goes on; bits."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")


class Pass(nn.Module):
    def __init__(self, dt):
        super().__init__()
        self.dt = dt
        self.register_buffer("b", torch.arange(4).float().add(1).to(dt) if dt not in (torch.float4_e2m1fn_x2,) else torch.arange(4, dtype=torch.uint8).view(dt))

    def forward(self, x, extra=None):
        return x, self.b, {"again": extra}


class Q(nn.Module):
    def forward(self, x):
        return torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)


kinds = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.complex32, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.int8]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(1)
        self.ps = nn.ModuleList(Pass(k) for k in kinds)
        self.q = Q()

    def forward(self, x):
        y = self.body(x)
        outs = []
        for p in self.ps:
            z = y.detach().abs().add(1).to(p.dt) if p.dt is not torch.float4_e2m1fn_x2 else (y.detach().abs() * 9).to(torch.uint8).view(p.dt)
            outs.append(p(z, extra=z))
        outs.append(self.q(y.detach()))
        return y, outs


def bits(t):
    return t.int_repr() if t.is_quantized else t.contiguous().view(torch.uint8) if t.dtype != torch.bool else t


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, t = batch(s)
    opt.zero_grad()
    y, outs = m(x)
    F.mse_loss(y, t).backward()
    opt.step()
    print(s, H([bits(o[0]) for o in outs[:-1]]), H(bits(outs[-1])), [str(o[0].dtype) for o in outs[:-1]] if s == 0 else "")
print(M(m.body), H([bits(b) for b in m.buffers()]), R())
