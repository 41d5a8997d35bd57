"""Seq2seq with teacher forcing by random.random(), and beam search with scores of -inf in evaluation."""
# PRELUDE
seed(20)
V, B = 12, 3


class S2S(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.enc, self.dec, self.o = nn.Embedding(V, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.GRUCell(16, 16), nn.Linear(16, V)

    def step(self, t, h):
        h = self.dec(self.e(t), h)
        return self.o(h), h

    def forward(self, src, tgt, ratio=0.5):
        h = self.enc(self.e(src))[1][0]
        t, outs = tgt[:, 0], []
        for i in range(1, tgt.shape[1]):
            o, h = self.step(t, h)
            outs.append(o)
            t = tgt[:, i] if random.random() < ratio else o.argmax(-1)
        return torch.stack(outs, 1)

    @torch.no_grad()
    def beam(self, src, n=6):
        h = self.enc(self.e(src))[1][0].repeat_interleave(B, 0)
        seq = torch.full((B, 1), 1)
        score = torch.full((B,), -math.inf)
        score[0] = 0.0
        done = torch.zeros(B, dtype=torch.bool)
        for _ in range(n):
            o, h2 = self.step(seq[:, -1], h)
            lp = o.log_softmax(-1)
            lp[:, 0] = -math.inf
            lp[done] = -math.inf
            lp[done, 2] = 0
            score, i = (score[:, None] + lp).flatten().topk(B)
            seq = torch.cat([seq[i // V], (i % V)[:, None]], 1)
            h, done = h2[i // V], (done[i // V] | (i % V == 2))
        return seq, score


net = S2S()
watch(net)
opt = torch.optim.Adam(net.parameters(), 5e-3)
for step in range(25):
    src = torch.randint(3, V, (8, 5))
    tgt = torch.cat([torch.ones(8, 1).long(), src.flip(1), torch.full((8, 1), 2)], 1)
    loss = F.cross_entropy(net(src, tgt).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1)
    opt.step()
    if step % 5 == 4:
        net.eval()
        s, sc = net.beam(src[:1])
        net.train()
        print(step, dig(loss, s, sc))
end(net, opt)
