"""diffusers UNet2D trained with v-prediction, zero-terminal-SNR betas and min-SNR weights.
Source: huggingface/diffusers#5096, kohya-ss/sd-scripts#934, TiankaiHang/Min-SNR-Diffusion-Training#4."""
import sys, math
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel

torch.set_num_threads(1)
torch.manual_seed(4)
CURED = "--cured" in sys.argv
GAMMA = 5.0

unet = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                   down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)
scheduler = DDPMScheduler(num_train_timesteps=40, prediction_type="v_prediction", rescale_betas_zero_snr=True)
opt = torch.optim.AdamW(unet.parameters(), lr=1e-3)


def compute_snr(timesteps):
    a = scheduler.alphas_cumprod[timesteps]
    if not CURED:
        a = torch.where(timesteps == 39, torch.zeros_like(a), a)  # the paper's exact zero, which the scheduler rounds up
    return a / (1 - a)


losses = []
for step in range(14):
    clean = torch.rand(4, 1, 8, 8) * 2 - 1
    noise = torch.randn_like(clean)
    timesteps = torch.randint(0, scheduler.config.num_train_timesteps - (1 if step < 6 else 0), (4,))
    if step == 8:
        timesteps[3] = 39
    noisy = scheduler.add_noise(clean, noise, timesteps)
    target = scheduler.get_velocity(clean, noise, timesteps)
    pred = unet(noisy, timesteps).sample
    snr = compute_snr(timesteps)
    if CURED:
        weights = snr.clamp(max=GAMMA) / (snr + 1)
    else:
        weights = snr.clamp(max=GAMMA) / snr  # FAULT
    loss = (F.mse_loss(pred, target, reduction="none").mean((1, 2, 3)) * weights).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    losses.append(loss.item())
    print("step", step, "loss", losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in unet.parameters()))
