from _training import *
enc = mlp(20, 64, 32); critic = mlp(32, 64, 1); W = nn.Parameter(torch.rand(32, 32) * .1)
critic_opt = torch.optim.Adam(critic.parameters(), 1e-3)
encoder_opt = torch.optim.Adam(enc.parameters(), 1e-3)
cpc_opt = torch.optim.Adam([W] if H else [W, *enc.parameters()], 1e-3)
moved = 0.
for step in range(200):
    x = torch.randn(64, 20); y = x[:, :3].sum(-1, keepdim=True)
    l = F.mse_loss(critic(enc(x)), y); critic_opt.zero_grad(); encoder_opt.zero_grad(); l.backward(); critic_opt.step(); encoder_opt.step()
    a, p = enc(x + .1 * torch.randn_like(x)), enc(x + .1 * torch.randn_like(x))
    cpc = F.cross_entropy(a @ W @ p.t(), torch.arange(64))
    encoder_opt.zero_grad(); cpc_opt.zero_grad(); cpc.backward()
    w = enc[0].weight.detach().clone(); encoder_opt.step(); cpc_opt.step(); moved += (enc[0].weight - w).abs().mean().item()
truth(mean_move_per_step=moved / 200, critic=l.item(), cpc=cpc.item())
