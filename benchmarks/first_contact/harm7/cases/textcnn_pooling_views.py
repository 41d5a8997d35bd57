"""max_pool1d and its relatives in a text CNN, in training, no_grad, inference_mode and on odd dtypes (with a fallback on error), must keep values, views, strides and error texts."""
# PRELUDE
class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 8, padding_idx=0)
        self.c = nn.ModuleList(nn.Conv1d(8, 6, k, padding=k // 2) for k in (3, 5))
        self.o = nn.Linear(12 + 6, 3)
        self.log = []

    def forward(self, t):
        x = self.e(t).transpose(1, 2)
        hs = [F.relu(c(x)) for c in self.c]
        pooled = [F.max_pool1d(h, h.shape[-1]).squeeze(2) for h in hs]
        short = F.max_pool1d(hs[0], 3, stride=2, padding=1, dilation=1, ceil_mode=True)
        self.log.append((pooled[0]._is_view(), short._is_view(), short._base is None, short.stride(), short.is_contiguous(), short.is_inference() or short._version))
        return self.o(torch.cat([*pooled, F.adaptive_avg_pool1d(short, 1).flatten(1)], 1))


torch.manual_seed(2)
m = TextCNN()
W(m)
opt = torch.optim.Adadelta(m.parameters())
for s in range(4):
    g = torch.Generator().manual_seed(s)
    t, y = torch.randint(0, 30, (5, 11), generator=g), torch.randint(0, 3, (5,), generator=g)
    opt.zero_grad()
    loss = F.cross_entropy(m(t), y)
    loss.backward()
    opt.step()
    with torch.no_grad():
        a = m(t)
    with torch.inference_mode():
        b = m(t)
        q = F.max_pool1d(b[None], 2)
    print(s, float(loss.detach()).hex(), M(m), H(a), H(b), q.is_inference(), H(q))
    with torch.inference_mode():
        print(s, [t._is_view() for t in (b.broadcast_to(2, 5, 3), b.expand(2, 5, 3), b.expand_as(torch.ones(2, 5, 3)), *b.unsafe_chunk(2), *torch.broadcast_tensors(b, b[:1]), *b.chunk(2), b.T, b.T.flatten(), b[0])])
for kind in m.log:
    print(kind)
counts = torch.randint(0, 9, (1, 2, 9))
for dt in (torch.long, torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.complex64, torch.double):
    for f in (F.max_pool1d, F.avg_pool1d, lambda v, k: F.max_pool1d(v[0], k, return_indices=True), lambda v, k: F.max_pool2d(v, k), lambda v, k: F.lp_pool1d(v, 2, k)):
        try:
            r = f(counts.to(dt), 3)
            print(dt, H(r), [(x.stride(), x._is_view()) for x in (r if isinstance(r, tuple) else (r,))])
        except (RuntimeError, NotImplementedError) as e:
            print(dt, type(e).__name__, str(e).splitlines()[0])
