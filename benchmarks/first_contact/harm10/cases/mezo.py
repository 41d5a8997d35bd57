#: what: MeZO: weights perturbed in place from a saved seed, two losses without gradients, p.data replaced; torch's generator reseeded each time
#: source: https://github.com/princeton-nlp/MeZO/issues/8
# PRELUDE
m = nn.Sequential(nn.Embedding(30, 16), nn.Flatten(), nn.LayerNorm(96), nn.Linear(96, 4)); watch(m); params = [(n, p) for n, p in m.named_parameters() if p.requires_grad]
def perturb(seed, s, eps=1e-2):
    torch.manual_seed(seed)
    for n, p in params: p.data = p.data + s * torch.normal(0.0, 1.0, p.shape) * eps
def f(x, y):
    m.eval()
    with torch.inference_mode(): return F.cross_entropy(m(x), y).detach()
gen = torch.Generator().manual_seed(5)
for step in range(25):
    x = torch.randint(30, (16, 6), generator=gen); y = x[:, 0] % 4; s = int(np.random.randint(1000000000))
    perturb(s, 1); a = f(x, y); perturb(s, -2); b = f(x, y); g = ((a - b) / 2e-2).item(); perturb(s, 1)
    torch.manual_seed(s)
    for n, p in params:
        z = torch.normal(0.0, 1.0, p.shape); p.data = p.data - 1e-2 * (g * z + (0 if "bias" in n else 1e-4 * p.data))
    print(step, a.item(), g)
show(m)
