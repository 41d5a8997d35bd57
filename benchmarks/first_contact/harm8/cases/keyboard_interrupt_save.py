# what: Ctrl-C (raise_signal within forward, backward hook, optimizer step) caught to save a checkpoint and go on, as in word_language_model
# PRELUDE
import signal
class Strike(nn.Module):
    at = None
    def forward(self, x):
        if Strike.at == "forward": Strike.at = None; signal.raise_signal(signal.SIGINT)
        return x
model = nn.Sequential(net(), Strike()); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
opt.register_step_pre_hook(lambda *a: (Strike.__setattr__, setattr(Strike, "at", None), signal.raise_signal(signal.SIGINT)) if Strike.at == "step" else None)
def bh(g):
    if Strike.at == "backward": Strike.at = None; signal.raise_signal(signal.SIGINT); sum(range(1000))
    return g
model[0][2].weight.register_hook(bh)
for s in range(9):
    Strike.at = {2: "forward", 4: "step", 6: "backward"}.get(s); x, y = batch(s)
    try: opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); opt.step(); print(float(l.detach()).hex())
    except KeyboardInterrupt: print("exiting early", s); torch.save(model.state_dict(), f"int{s}.pt")
print(M(model), R())
