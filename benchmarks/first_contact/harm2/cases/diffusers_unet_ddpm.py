"""UNet2D of diffusers with a DDPM scheduler and EMAModel: training, sampling, save_pretrained; files.

Source: https://github.com/huggingface/diffusers (examples/unconditional_image_generation)
"""
# PRELUDE
from diffusers import UNet2DModel, DDPMScheduler
from diffusers.training_utils import EMAModel
torch.manual_seed(0)
m = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
W(m)
ema = EMAModel(m.parameters(), decay=0.9)
sched = DDPMScheduler(num_train_timesteps=10)
opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
for s in range(3):
    x0, noise = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    t = torch.randint(0, 10, (2,))
    loss = F.mse_loss(m(sched.add_noise(x0, noise, t), t).sample, noise)
    opt.zero_grad(); loss.backward(); opt.step(); ema.step(m.parameters())
    print(float(loss.detach()).hex())
with torch.no_grad():
    x = torch.randn(1, 1, 8, 8)
    for t in sched.timesteps:
        x = sched.step(m(x, t).sample, t, x).prev_sample
print(H(x), M(m), R())
m.save_pretrained("unet")
