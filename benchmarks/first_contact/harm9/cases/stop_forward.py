"""nethook: a forward hook raises StopForward to end the call at a layer; activations are read, edited, traced; between training steps."""
# PRELUDE
seed(11)


class StopForward(Exception):
    pass


net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.LayerNorm(16), nn.Linear(16, 3))
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
kept = {}


def stopper(m, i, o):
    kept["o"] = o
    raise StopForward()


def edit(m, i, o):
    return o * 1.5 if not torch.is_grad_enabled() else o


for step in range(20):
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    handle = net[2][0].register_forward_hook(stopper)
    try:
        net(x)
        print("not stopped")
    except StopForward:
        pass
    handle.remove()
    aux = kept.pop("o").pow(2).mean()
    h2 = net[2].register_forward_hook(edit)
    loss = F.cross_entropy(net(x), y) + 0.01 * aux
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        h3 = net[0].register_forward_hook(stopper)
        try:
            net(x)
        except StopForward:
            h3.remove()
        probe = kept.pop("o")
        if step % 5 == 0:
            probe = probe / 0
        out = net(x)
    h2.remove()
    print(step, dig(loss, probe, out))
print(len(net[2]._forward_hooks.values()) if False else "done")
end(net, opt)
