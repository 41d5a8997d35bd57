"""A script that seeds once, in its first lines: all draws after that (imports, first calls, dropout, shuffles, Sobol, Gumbel); torch.seed() still gives other seeds.

Source: https://github.com/pytorch/pytorch docs/source/notes/randomness.rst
"""
# PRELUDE
print(torch.initial_seed(), torch.randn(3).tolist(), torch.randperm(8).tolist())
m = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.RReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(m.parameters(), 0.1)
for b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 4)), 4, shuffle=True):
    loss = m(b[0]).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex(), H(torch.get_rng_state()))
print(F.gumbel_softmax(torch.zeros(3)).tolist(), torch.Generator().initial_seed(), torch.quasirandom.SobolEngine(2, scramble=True).draw(2).tolist(), torch.seed() > 0)
