"""Losses of thousands of small operations outside the model, thousands of operations on gradients one by one between backward and step, gradients changed through views and .data, for many steps: bits of everything."""
# PRELUDE
m = net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(10):
    x, y = batch(s)
    opt.zero_grad()
    out = m(x)
    loss = out.new_zeros(())
    n = [3, 30, 300, 900, 1500][s % 5]
    for i in range(n):
        a, b = out[i % 6, i % 4], y[i % 6, i % 4]
        loss = loss + (a - b).square() / n if i % 3 else loss + (a - b).abs() / n
    loss.backward()
    for rep in range([1, 5, 60, 120, 2][s % 5]):
        for p in m.parameters():
            g = p.grad
            g.view(-1)[rep % g.numel()].mul_(1.01)
            p.grad.data.add_(p.data, alpha=1e-4)
            if rep == 3:
                p.grad = g - g.mean()
    opt.step()
    with torch.no_grad():
        for rep in range(200 if s == 7 else 3):
            for p in m.parameters():
                p.mul_(1 - 1e-6)
    print(s, loss.item().hex(), M(m), H(opt.state_dict()))
print(R())
