"""EDM's preconditioning and Heun sampler by hand, then diffusers' schedulers with noise of their own generators over one trained UNet1D, must keep samples, schedules, random states and forward counts."""
# PRELUDE
from diffusers import DPMSolverMultistepScheduler, EDMEulerScheduler, HeunDiscreteScheduler, LCMScheduler, PNDMScheduler, UNet1DModel, UniPCMultistepScheduler
from diffusers.training_utils import compute_snr, free_memory

torch.manual_seed(0)
m = UNet1DModel(sample_size=16, in_channels=2, out_channels=2, block_out_channels=(32, 32), down_block_types=("DownBlock1DNoSkip", "DownBlock1D"), up_block_types=("UpBlock1D", "UpBlock1DNoSkip"), mid_block_type="UNetMidBlock1D", extra_in_channels=64, norm_num_groups=4, use_timestep_embedding=False)
W(m)
calls = []
m.register_forward_hook(lambda *a: calls.append(1))
opt = torch.optim.AdamW(m.parameters(), 1e-3)
sd = 0.5


def denoise(x, sigma):
    sigma = sigma.reshape(-1, 1, 1)
    skip, out, cin = sd**2 / (sigma**2 + sd**2), sigma * sd / (sigma**2 + sd**2).sqrt(), 1 / (sd**2 + sigma**2).sqrt()
    f = m(cin * x, (sigma.log() / 4).flatten()).sample
    return skip * x + out * f


for s in range(4):
    g = torch.Generator().manual_seed(s)
    x = torch.randn(4, 2, 16, generator=g) * sd
    sigma = (torch.randn(4) * 1.2 - 1.2).exp()
    w = (sigma**2 + sd**2) / (sigma * sd) ** 2
    d = denoise(x + torch.randn_like(x) * sigma[:, None, None], sigma)
    loss = (w[:, None, None] * (d - x) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    for p in m.parameters():
        if p.grad is not None:
            torch.nan_to_num(p.grad, nan=0, posinf=1e5, neginf=-1e5, out=p.grad)
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), len(calls), R(), [p.grad._version for p in m.parameters() if p.grad is not None][:5])
with torch.no_grad():
    i = torch.arange(6, dtype=torch.float64)
    ts = (80 ** (1 / 7) + i / 5 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    ts = torch.cat([ts, torch.zeros(1)])
    x = torch.randn(2, 2, 16, dtype=torch.float64) * ts[0]
    for k, (a, b) in enumerate(zip(ts[:-1], ts[1:])):
        gamma = min(10 / 6, 2**0.5 - 1) if 0.05 <= a <= 50 else 0
        h = a + gamma * a
        xh = x + (h**2 - a**2).sqrt() * 1.003 * torch.randn_like(x)
        d = (xh - denoise(xh.float(), h.float()).double()) / h
        x = xh + (b - h) * d
        if k < 5:
            d2 = (x - denoise(x.float(), b.float()).double()) / b
            x = xh + (b - h) * (0.5 * d + 0.5 * d2)
        print("heun", k, H(x), len(calls), R())
m.eval()
for cls in (EDMEulerScheduler, DPMSolverMultistepScheduler, HeunDiscreteScheduler, UniPCMultistepScheduler, PNDMScheduler, LCMScheduler):
    sch = cls(num_train_timesteps=100)
    sch.set_timesteps(4)
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2, 16, generator=gen) * sch.init_noise_sigma
    with torch.inference_mode():
        for t in sch.timesteps:
            x_in = sch.scale_model_input(x, t)
            kw = {} if cls in (HeunDiscreteScheduler, UniPCMultistepScheduler, PNDMScheduler) else {"generator": gen}
            x = sch.step(m(x_in, t.reshape(1)).sample, t, x, **kw).prev_sample
    print(cls.__name__, H(x), H(sch.timesteps), H(gen.get_state()), len(calls), R())
print(H(compute_snr(PNDMScheduler(num_train_timesteps=100), torch.arange(5))))
