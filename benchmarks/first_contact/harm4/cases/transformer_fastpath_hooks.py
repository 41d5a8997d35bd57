"""nn.TransformerEncoder's native fast path (nested tensors for padding, fused layer) in eval without gradients, and MultiheadAttention's: taken only where modules have no hooks."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x, pad=None):
        h = self.enc(x, src_key_padding_mask=pad)
        return self.head(h), h


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
x = torch.randn(4, 7, 16)
pad = torch.zeros(4, 7, dtype=torch.bool)
pad[0, 5:] = pad[1, 4:] = pad[2, 6:] = pad[3, 6:] = True
for s in range(4):
    m.train()
    opt.zero_grad()
    m(x, pad)[0][~pad].square().mean().backward()
    opt.step()
    m.eval()
    with torch.no_grad():
        y, h = m(x, pad)
        print(s, tuple(y.shape), tuple(h.shape), H(y, h), float(h[0, -1].abs().sum()) == 0.0)
with torch.inference_mode():
    y, h = m(x, pad)
    print("inference", tuple(h.shape), H(y, h))
    z, w = m.mha(x, x, x, need_weights=True, average_attn_weights=False)
    print("mha", H(z, w))
    print("layer", H(m.enc.layers[0](x)), H(m.enc.layers[1](x, src_key_padding_mask=pad)))
    e2 = m.enc(x, src_key_padding_mask=pad)
    print("encoder alone", tuple(e2.shape), H(e2))
print(M(m), R())
