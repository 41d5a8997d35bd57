"""Allocation-free loops: outputs written into buffers made once (out=), gradients into preallocated .grad, an output tensor of the model that is overwritten at each call, a ring of pinned-like input buffers filled in place after the call."""
# PRELUDE
class Static(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 4) * 0.2)
        self.out = torch.zeros(6, 4)
        self.tmp = torch.zeros(6, 8)

    def forward(self, x):
        torch.clamp(x, -1, 1, out=self.tmp)
        torch.mm(self.tmp, self.w.detach(), out=self.out)
        return self.out


m = Static()
fast = net()
W(fast)
W(m)
ring = [torch.empty(6, 8) for _ in range(2)]
for p in (*m.parameters(), *fast.parameters()):
    p.grad = torch.zeros_like(p)
ptrs = [p.grad.data_ptr() for p in fast.parameters()]
opt = torch.optim.SGD([*m.parameters(), *fast.parameters()], 0.05)
for s in range(16):
    x = ring[s % 2]
    x.copy_(batch(s)[0])
    with torch.no_grad():
        y = m(x)
    z = fast(x)
    loss = F.mse_loss(z, y)
    x.zero_()  # the first layer needs x for its gradient: allowed once the version is put back
    torch._C._autograd._unsafe_set_version_counter((x,), (x._version - 1,))
    x.copy_(batch(s)[0])
    torch._C._autograd._unsafe_set_version_counter((x,), (x._version - 1,))
    loss.backward()
    torch.mm(m.tmp.t(), y - z.detach(), out=m.w.grad)
    opt.step()
    opt.zero_grad(set_to_none=False)
    print(s, loss.item().hex(), H(y), y is m.out, [p.grad.data_ptr() for p in fast.parameters()] == ptrs, x._version, M(m), M(fast))
