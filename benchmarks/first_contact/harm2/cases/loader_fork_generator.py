"""DataLoader with forked workers, generator, worker_init_fn, numpy draws in the dataset; parent trains between epochs; batches bit for bit.

Source: https://app.semanticdiff.com/gh/strisunshinewentingwang/pytorch/commit/aec83ff45ebd2cb3d4890cc97bffb1f367386392
"""
# PRELUDE
class DS(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.randn(8) + np.random.rand() + random.random(), torch.full((4,), float(i)) / 12
def init(w): info = torch.utils.data.get_worker_info(); np.random.seed(info.seed % 2 ** 31); assert info.id == w
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); g = torch.Generator().manual_seed(3)
dl = torch.utils.data.DataLoader(DS(), 4, shuffle=True, num_workers=2, generator=g, worker_init_fn=init)
for e in range(2):
    for x, y in dl:
        loss = F.mse_loss(m(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(e, H(x, y), float(loss.detach()).hex())
print(M(m), R(), H(g.get_state()))
