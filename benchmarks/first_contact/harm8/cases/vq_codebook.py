# what: vector quantization with EMA codebook, kmeans init in the first batch, dead codes replaced (buffers in the forward)
# PRELUDE
from vector_quantize_pytorch import VectorQuantize, FSQ
class Net(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Linear(8, 6); self.q = VectorQuantize(dim=6, codebook_size=8, decay=.8, kmeans_init=True, threshold_ema_dead_code=2); self.d = nn.Linear(6, 8); self.f = FSQ([5, 3, 3])
    def forward(self, x): z, i, c = self.q(self.e(x)[None]); f, _ = self.f(z[..., :3]); return self.d(torch.cat([f, z[..., 3:]], -1))[0], i, c
m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(6):
    x = batch(s, n=20)[0]; opt.zero_grad(); o, i, c = m(x); l = F.mse_loss(o, x) + c.sum(); l.backward(); opt.step(); print(float(l.detach()).hex(), H(i), H(dict(m.q.named_buffers())))
m.eval()
with torch.no_grad(): print(H(m(x)[0]))
print(M(m), R())
