"""Figures during training (Agg): weights and gradients plotted and saved each epoch, an animation of a decision boundary, rcParams, pandas summary written as CSV and parquet."""
# PRELUDE
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt, pandas as pd
m = net(2, 2, 12, 2)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
rows = []
for ep in range(3):
    fig, ax = plt.subplots(1, 2, figsize=(4, 2))
    for s in range(4):
        x, y = batch(ep * 4 + s, 16, 2, 2)
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        opt.step()
        rows.append({"epoch": ep, "loss": loss.item(), **{n: p.grad.norm().item() for n, p in m.named_parameters()}})
    ax[0].plot([r["loss"] for r in rows])
    with torch.no_grad():
        ax[1].imshow(m(torch.cartesian_prod(torch.linspace(-1, 1, 12), torch.linspace(-1, 1, 12)))[:, 0].view(12, 12))
    fig.savefig(f"e{ep}.png", metadata={"Software": None})
    plt.close(fig)
df = pd.DataFrame(rows)
df.to_csv("log.csv", index=False)
df.groupby("epoch").mean().to_parquet("log.parquet")
print(H(df.to_numpy()), M(m), R(), plt.get_fignums())
