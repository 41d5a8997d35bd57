"""torch.use_deterministic_algorithms(True): torch.empty is filled with nan (fill_uninitialized_memory). A model with scratch buffers, resized tensors and empty_like work space that it overwrites before it reads; index_put, scatter and bincount texts; switched on and off in mid-run."""
# PRELUDE
torch.use_deterministic_algorithms(True)


class Scratch(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.register_buffer("work", torch.empty(6, 4))
        self.register_buffer("cache", torch.empty(3, 4), persistent=False)
        self.used = 0

    def forward(self, x):
        y = self.body(x)
        out = torch.empty_like(y)
        out[:, ::2] = y[:, ::2]
        out[:, 1::2] = y[:, 1::2].tanh()
        with torch.no_grad():
            self.work.copy_(y)
            self.cache[self.used % 3] = y.mean(0)
        self.used += 1
        return out + self.work.mean() + self.cache[: min(self.used, 3)].mean()


m = Scratch()
print(torch.isnan(m.work).all().item(), torch.utils.deterministic.fill_uninitialized_memory)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    print(train(m, opt, 1, s), M(m), H(m.cache))
    e = torch.empty(3)
    r = torch.ones(2).resize_(5)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:
        print(e.isnan().tolist(), r.isnan().tolist(), torch.empty(2, dtype=torch.int32).tolist())
    if s == 2:
        torch.utils.deterministic.fill_uninitialized_memory = False
    if s == 3:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(True, warn_only=True)
    if s == 4:
        torch.use_deterministic_algorithms(False)
    print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(), torch.get_deterministic_debug_mode())
torch.use_deterministic_algorithms(True)
t = torch.zeros(4).index_put_((torch.tensor([0, 0]),), torch.ones(2), accumulate=True)
print(t, torch.empty_permuted((2, 3), (1, 0)).isnan().all().item(), torch.empty_strided((2, 2), (2, 1)).isnan().all().item(), R())
