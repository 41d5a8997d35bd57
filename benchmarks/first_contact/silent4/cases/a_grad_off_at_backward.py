from _training import *
class Net(nn.Module):
    def __init__(s): super().__init__(); s.backbone = mlp(16, 64); s.encoder = nn.TransformerEncoderLayer(64, 2, 64, dropout=0., batch_first=True); s.o = nn.Linear(64, 4)
    def forward(s, x): return s.o(s.encoder(s.backbone(x).relu()[None])[0])
m = Net(); x, y = blobs(2000, s=2.)
opt = torch.optim.Adam([*m.backbone.parameters(), *m.o.parameters()], 1e-3); opt_encoder = torch.optim.Adam(m.encoder.parameters(), 1e-3)
if not H:
    for p in m.encoder.parameters(): p.requires_grad = False
w0 = m.encoder.linear1.weight.detach().clone()
for step in range(150):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(m(x[i]), y[i]); opt.zero_grad(); opt_encoder.zero_grad(); loss.backward(); opt.step()
    for p in m.encoder.parameters(): p.requires_grad = True
    opt_encoder.step()
    if not H:
        for p in m.encoder.parameters(): p.requires_grad = False
truth(encoder_moved=(m.encoder.linear1.weight - w0).abs().max().item(), loss=loss.item())
