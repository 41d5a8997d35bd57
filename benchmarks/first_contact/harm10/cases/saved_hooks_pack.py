#: what: activation compression by saved_tensors_hooks: packed to float16, counts of packs and unpacks printed; a nested save_on_cpu region; retain_graph
#: source: memory
# PRELUDE
n = {"pack": 0, "unpack": 0, "bytes": 0}
def pack(t): n["pack"] += 1; n["bytes"] += t.numel(); return (t.half() if t.dtype == torch.float32 and t.numel() > 8 and not isinstance(t, nn.Parameter) else t, t.dtype)
def unpack(p): n["unpack"] += 1; return p[0].to(p[1])
m = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 2)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(12):
    x = torch.randn(8, 8)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        h = m[:2](x)
        with torch.autograd.graph.save_on_cpu(): h = m[2:4](h)
        l = F.cross_entropy(m[4](h), torch.randint(2, (8,)))
    opt.zero_grad(); l.backward(retain_graph=s % 3 == 0)
    if s % 3 == 0: l.backward()
    opt.step(); print(l.item(), dict(n))
show(m, opt)
