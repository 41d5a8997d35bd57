from _training import *
q = mlp(6, 64, 4); opt = torch.optim.Adam(q.parameters(), 1e-3)
for step in range(300):
    s = torch.randn(32, 6); a = torch.randint(4, (32,)); y = s[:, 0] + a.float()
    qa = (q(s) * F.one_hot(a, 4)); qa = qa.sum(1) if H else qa.sum()
    loss = ((y - qa) ** 2).mean(); opt.zero_grad(); loss.backward(); opt.step()
s = torch.randn(500, 6); truth(best_action_share=(q(s).argmax(-1) == 3).float().mean().item(), mse_of_q=((q(s) - (s[:, :1] + torch.arange(4.))) ** 2).mean().item())
