"""Feedback alignment by full backward hooks that return another grad_input; pre-hooks that change gradients; hooks that are removed within themselves."""
# PRELUDE
seed(50)


class FA(nn.Linear):
    def __init__(self, i, o):
        super().__init__(i, o)
        self.register_buffer("fb", torch.randn(o, i) * 0.1)
        self.register_full_backward_hook(self.swap)
        self.register_full_backward_pre_hook(lambda m, g: (g[0].clamp(-0.1, 0.1),))

    @staticmethod
    def swap(m, gi, go):
        order.append(id(m) in ids)
        return (go[0] @ m.fb,) if gi[0] is not None else gi


order = []
net = nn.Sequential(FA(6, 16), nn.Tanh(), FA(16, 16), nn.Tanh(), FA(16, 2))
ids = {id(m) for m in net}
seen = []


def once(m, gi, go):
    seen.append(type(m).__name__)
    h.remove()


h = net[1].register_full_backward_hook(once)
watch(net)
g = nn.modules.module.register_module_full_backward_hook(lambda m, gi, go: seen.append(type(m).__name__))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(15):
    x = torch.randn(16, 6, requires_grad=step % 2 == 0)
    loss = F.cross_entropy(net(x), torch.randint(0, 2, (16,)))
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss, x.grad), len(seen), len(order))
    if step == 9:
        g.remove()
print(dig(seen), dig(order))
end(net, opt)
