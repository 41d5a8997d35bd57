#: what: diffusers' training tutorial: UNet2DModel, DDPMScheduler with clipped variances, cosine schedule, EMA swapped in for sampling, saved with save_pretrained
#: source: https://huggingface.co/docs/diffusers/tutorials/basic_training
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
from diffusers import UNet2DModel, DDPMScheduler; from diffusers.training_utils import EMAModel; from diffusers.optimization import get_cosine_schedule_with_warmup
m = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8); watch(m)
sch = DDPMScheduler(num_train_timesteps=20, beta_schedule="squaredcos_cap_v2", variance_type="fixed_small_log"); ema = EMAModel(m.parameters(), decay=0.9); opt = torch.optim.AdamW(m.parameters(), 1e-3); lr = get_cosine_schedule_with_warmup(opt, 2, 8)
for s in range(6):
    x = torch.randn(2, 1, 8, 8); n = torch.randn_like(x); t = torch.randint(0, 20, (2,)); l = F.mse_loss(m(sch.add_noise(x, n, t), t, return_dict=False)[0], n); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); lr.step(); opt.zero_grad(); ema.step(m.parameters()); print(l.item())
ema.store(m.parameters()); ema.copy_to(m.parameters()); m.eval(); sch.set_timesteps(6); x = torch.randn(1, 1, 8, 8)
for t in sch.timesteps:
    with torch.no_grad(): x = sch.step(m(x, t).sample, t, x).prev_sample
ema.restore(m.parameters()); print(sha(x)); m.save_pretrained("unet"); show(m, opt)
