"""Jagged and strided nested tensors outside and inside the model (a loss over unbound sequences, padded back, attention over sequences of unequal lengths, lengths of zero) must keep values, offsets, layouts and warnings."""
# PRELUDE
import warnings


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, nt):
        h = self.q(nt)
        each = []
        for t in h.unbind():
            q, k, v = t.chunk(3, -1)
            each.append(F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0])
        return self.o(F.gelu(torch.nested.nested_tensor_from_jagged(torch.cat(each), h.offsets())))


with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.manual_seed(0)
    m = Enc()
    W(m)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    for s in range(4):
        g = torch.Generator().manual_seed(s)
        seqs = [torch.randn(n, 8, generator=g) for n in (3, 7, 1, 5)]
        nt = torch.nested.nested_tensor(seqs, layout=torch.jagged)
        out = m(nt)
        pad = out.to_padded_tensor(0.0)
        loss = sum(o.square().mean() for o in out.unbind()) + pad.abs().mean() + torch.nested.to_padded_tensor(out, -1.0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(s, float(loss.detach()).hex(), M(m), H(out.values()), H(out.offsets()), out.layout, out.values()._version, pad.stride())
        with torch.no_grad():
            st = torch.nested.nested_tensor(seqs)
            h = F.linear(st, m.o.weight, m.o.bias)
            sm = torch.softmax(h, -1)
            print(s, "strided", h.layout, h.is_nested, H(torch.nested.to_padded_tensor(sm, float("nan")).nan_to_num(7.0)), h._nested_tensor_size().tolist(), H([t for t in sm.unbind()]), H(torch.nested.to_padded_tensor(F.gelu(h), 0.0)))
            zero = torch.nested.nested_tensor([seqs[0], torch.randn(0, 8, generator=g)], layout=torch.jagged)
            mean = torch.stack([t.mean(0) for t in zero.unbind()])  # an empty mean
            print(s, "empty", mean.isnan().all(1).tolist(), H(m.o(zero).values()), H(out.sum(1) if s > 1 else out.values().sum(0)), H((out * 2 + 1).values()))
            lay = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).eval()
            mask = torch.arange(7) >= torch.tensor([3, 7, 1, 5])[:, None]
            print(s, "fast", H(lay(nt.to_padded_tensor(0.0), src_key_padding_mask=mask)), H(nn.TransformerEncoder(lay, 1, enable_nested_tensor=True).eval()(nt.to_padded_tensor(0.0), src_key_padding_mask=mask)))
print(sorted({str(w.message)[:80] for w in seen}))
