"""AutoencoderKL of diffusers with a patch discriminator: the adaptive weight of the GAN's loss is a quotient of two gradient norms at the last layer (autograd.grad, retain_graph), two optimizers."""
# PRELUDE
from diffusers import AutoencoderKL

m = AutoencoderKL(in_channels=1, out_channels=1, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4, latent_channels=2)
d = nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(1, 8, 3, 2, 1)), nn.LeakyReLU(0.2), nn.BatchNorm2d(8), nn.Conv2d(8, 1, 3))
W(m), W(d)
om, od = torch.optim.Adam(m.parameters(), 1e-3, betas=(0.5, 0.9)), torch.optim.Adam(d.parameters(), 1e-3, betas=(0.5, 0.9))
last = m.decoder.conv_out.weight
for s in range(4):
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(s))
    post = m.encode(x).latent_dist
    y = m.decode(post.sample()).sample
    nll = (x - y).abs().mean() + 1e-3 * post.kl().mean()
    gl = -d(y).mean()
    w = torch.autograd.grad(nll, last, retain_graph=True)[0].norm() / (torch.autograd.grad(gl, last, retain_graph=True)[0].norm() + 1e-4)
    w = w.clamp(0, 1e4).detach()
    om.zero_grad()
    (nll + 0.5 * w * gl).backward()
    om.step()
    od.zero_grad()
    dl = F.relu(1 - d(x)).mean() + F.relu(1 + d(y.detach())).mean()
    dl.backward()
    od.step()
    print(s, nll.item().hex(), w.item().hex(), dl.item().hex())
print(M(m), M(d), R())
