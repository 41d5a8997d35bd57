"""OpenAI's evolution strategies: antithetic noise by seeds, weights written by vector_to_parameters under no_grad, no gradient at all, ranks of rewards, workers' seeds."""
# PRELUDE
from torch.nn.utils import parameters_to_vector, vector_to_parameters

m = net(10)
W(m)
theta = parameters_to_vector(m.parameters()).detach()
x, y = batch(0, 16)
with torch.no_grad():
    for it in range(6):
        rewards, eps = [], []
        for k in range(8):
            g = torch.Generator().manual_seed(100 * it + k)
            e = torch.randn(theta.numel(), generator=g)
            for sign in (1, -1):
                vector_to_parameters(theta + sign * 0.1 * e, m.parameters())
                rewards.append(-F.mse_loss(m(x), y).item())
                eps.append(sign * e)
        ranks = torch.tensor(rewards).argsort().argsort().float() / 15 - 0.5
        theta = theta + 0.05 * (ranks[:, None] * torch.stack(eps)).mean(0) / 0.1
        vector_to_parameters(theta, m.parameters())
        print(it, float(F.mse_loss(m(x), y)).hex(), H(theta))
print([p.requires_grad for p in m.parameters()], [p.grad for p in m.parameters()], M(m), R())
