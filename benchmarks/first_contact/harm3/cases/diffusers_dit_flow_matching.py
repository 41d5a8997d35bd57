"""A DiT of diffusers trained by flow matching with logit-normal times and classifier-free label dropout, then an Euler ODE with guidance; weights, samples."""
# PRELUDE
from diffusers import DiTTransformer2DModel, FlowMatchEulerDiscreteScheduler

m = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=2, num_layers=2, sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=2)
W(m)
m.train()
opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
sch = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000)
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x = torch.randn(3, 2, 8, 8, generator=g)
    t = torch.sigmoid(torch.randn(3, generator=g))
    n = torch.randn_like(x)
    z = (1 - t.view(-1, 1, 1, 1)) * x + t.view(-1, 1, 1, 1) * n
    v = m(z, timestep=(t * 9).long(), class_labels=torch.tensor([1, 2, 3])).sample[:, :2]
    loss = F.mse_loss(v, n - x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), R())
m.eval()
sch.set_timesteps(4)
z = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(9))
with torch.inference_mode():
    for t in sch.timesteps:
        k = (t / 1000 * 9).long().view(1).expand(2)
        a, b = m(torch.cat([z, z]), timestep=k, class_labels=torch.tensor([1, 10])).sample[:, :2].chunk(2)
        z = sch.step(b + 3 * (a - b), t, z).prev_sample
print(H(z), M(m))
