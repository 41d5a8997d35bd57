"""channels_last, expanded, transposed, zero-size and scalar outputs: strides, contiguity, storage sizes.

Source: https://github.com/pytorch/pytorch/pull/29669
"""
# PRELUDE
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv2d(3, 4, 3, padding=1); self.b = nn.BatchNorm2d(4); self.l = nn.Linear(4, 2)
    def forward(self, x):
        h = self.b(self.c(x)); z = self.l(h.mean((2, 3)))
        return h, z.t(), z[:0], z.sum(), z[:, :1].expand(-1, 5), torch.empty(0), h.flip(0), z.unsqueeze(0)[..., ::2]
m = Net().to(memory_format=torch.channels_last); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last) if s != 1 else torch.randn(2, 3, 5, 5)
    outs = m(x)
    print([(tuple(o.shape), o.stride(), o.is_contiguous(), o.storage_offset(), o.untyped_storage().nbytes()) for o in outs])
    loss = sum(o.sum() for o in outs); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex(), m.c.weight.grad.stride())
print(M(m))
