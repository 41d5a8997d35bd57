# what: a model made on meta, to_empty, load_state_dict(assign=True), mmap=True loads, weights_only, partial loads with missing keys, then trained
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)); self.register_buffer("best", torch.tensor(float("inf"))); self.register_buffer("tmp", torch.zeros(3), persistent=False)
    def forward(self, x): return self.f(x) + self.tmp.sum()
a = Net(); train(a, torch.optim.SGD(a.parameters(), lr=.1), 2); torch.save(a.state_dict(), "a.pt")
with torch.device("meta"): m = Net()
W(m)
try: m(torch.empty(2, 8, device="meta")); print("meta forward")
except Exception as e: print(type(e).__name__)
sd = torch.load("a.pt", mmap=True, weights_only=True); m.load_state_dict(sd, assign=True); m.tmp = torch.zeros(3); opt = torch.optim.Adam(m.parameters(), lr=.01); print(train(m, opt, 3), M(m))
with torch.device("meta"): m2 = Net()
m2 = m2.to_empty(device="cpu"); W(m2); print(m2.load_state_dict({k: v for k, v in sd.items() if "2" not in k}, strict=False).missing_keys); nn.init.zeros_(m2.tmp); nn.init.ones_(m2.f[2].weight); nn.init.zeros_(m2.f[2].bias); print(train(m2, torch.optim.SGD(m2.parameters(), lr=.01), 3), M(m2), R())
