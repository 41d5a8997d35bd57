# what: MeZO: two forwards under inference_mode with weights perturbed by reseeding the global generator; no backward at all
# PRELUDE
model = net(); model.insert(2, nn.Dropout(.1)); W(model)
def perturb(seed, k):
    torch.manual_seed(seed)
    for p in model.parameters(): p.data.add_(torch.normal(0., 1., p.shape), alpha=k)
for s in range(8):
    x, y = batch(s % 3); seed = int(np.random.randint(1 << 30)); ls = []
    for k in (1e-3, -2e-3):
        perturb(seed, k)
        with torch.inference_mode(): ls.append(F.mse_loss(model(x), y).item())
    perturb(seed, 1e-3); g = (ls[0] - ls[1]) / 2e-3; perturb(seed, -.01 * g); print(ls[0].hex(), g.hex())
print(M(model), R())
