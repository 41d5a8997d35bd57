"""Own generators (torch, numpy default_rng, SeedSequence, random.Random), fork_rng, states saved and restored in mid-training.

Source: https://app.semanticdiff.com/gh/strisunshinewentingwang/pytorch/commit/aec83ff45ebd2cb3d4890cc97bffb1f367386392
"""
# PRELUDE
random.seed(1); np.random.seed(2)
m = nn.Sequential(net(3), nn.Dropout(0.4)); W(m)
g, r, n = torch.Generator().manual_seed(4), random.Random(5), np.random.default_rng(6)
opt = torch.optim.SGD(m.parameters(), 0.1)
saved = None
for s in range(6):
    x = torch.randn(6, 8, generator=g) + n.normal() + r.random() + random.random() + np.random.rand()
    loss = m(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    with torch.random.fork_rng():
        torch.manual_seed(s); torch.rand(3)
    if s == 2: saved = (torch.get_rng_state(), g.get_state(), n.bit_generator.state)
    if s == 4: torch.set_rng_state(saved[0]); g.set_state(saved[1]); n.bit_generator.state = saved[2]
    print(s, float(loss.detach()).hex(), R(), H(g.get_state()), H(str(n.bit_generator.state)), H(r.getstate()))
print(M(m), torch.initial_seed(), g.initial_seed())
