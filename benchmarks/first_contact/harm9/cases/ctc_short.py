"""CTC with inputs shorter than their targets: losses of inf, zeroed by zero_infinity; and filtered by hand in evaluation."""
# PRELUDE
seed(18)


class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.r, self.o = nn.Conv1d(4, 16, 3, padding=1), nn.GRU(16, 16, bidirectional=True), nn.Linear(32, 7)

    def forward(self, x, lens):
        h = self.c(x).relu().permute(2, 0, 1)
        p = nn.utils.rnn.pack_padded_sequence(h, lens, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.r(p)[0])
        return self.o(h).log_softmax(-1)


net = Rec()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 5e-3)
crit, raw = nn.CTCLoss(zero_infinity=True), nn.CTCLoss(reduction="none")
for step in range(20):
    lens = torch.randint(6, 15, (6,))
    tl = torch.randint(2, 6, (6,))
    if step % 3 == 1:
        lens[0], tl[0] = 3, 5
    x, t = torch.randn(6, 4, int(lens.max())), torch.randint(1, 7, (6, 6))
    out = net(x, lens)
    loss = crit(out, t, lens, tl)
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_value_(net.parameters(), 0.5)
    opt.step()
    net.eval()
    with torch.no_grad():
        each = raw(net(x, lens), t, lens, tl)
        ok = each[each.isfinite()]
    net.train()
    print(step, dig(loss, each), len(ok), dig(ok.mean()))
end(net, opt)
