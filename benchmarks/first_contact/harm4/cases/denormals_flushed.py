"""torch.set_flush_denormal(True), then off again, with weights and gradients in the denormal range: what is zero and what is not."""
# PRELUDE
m = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False))
with torch.no_grad():
    m[0].weight.mul_(1e-20)
    m[1].weight.mul_(1e-19)
W(m)
opt = torch.optim.SGD(m.parameters(), 1e-30)


def show(label):
    w = torch.tensor([1e-39, 1e-38, -3e-40])
    print(label, (w * 1.0).tolist(), bool((w == 0).all()), float(np.float32(1e-39) * np.float32(1)), H(w * 1.0, w + w))


show("start")
for on in (True, False, True):
    print(torch.set_flush_denormal(on))
    for s in range(3):
        x, _ = batch(s)
        opt.zero_grad()
        out = m(x)
        out.sum().backward()
        opt.step()
        print(on, s, H(out), int((out == 0).sum()), M(m))
    show(on)
with torch.no_grad():
    print(H(m(batch(0)[0])))
torch.set_flush_denormal(False)
show("end")
