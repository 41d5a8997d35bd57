"""DPO: a policy and a frozen deep copy as reference, concatenated forward of chosen and rejected, label-smoothed loss, RMSprop with warm-up, state saved."""
# PRELUDE
import copy
from transformers import GPT2Config, GPT2LMHeadModel
cfg = GPT2Config(vocab_size=30, n_positions=24, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.1, bos_token_id=0, eos_token_id=0)
policy = GPT2LMHeadModel(cfg)
ref = copy.deepcopy(policy)
ref.requires_grad_(False).eval()
W(policy)
opt = torch.optim.RMSprop(policy.parameters(), 1e-3)
sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 4))


def logps(model, ids, mask):
    lg = model(ids).logits[:, :-1].float()
    lab = ids[:, 1:].clone()
    lm = mask[:, 1:].bool()
    lab[~lm] = 0
    return (torch.gather(lg.log_softmax(-1), 2, lab.unsqueeze(2)).squeeze(2) * lm).sum(-1)


for s in range(6):
    g = torch.Generator().manual_seed(s)
    c, r = (torch.randint(0, 30, (3, 12), generator=g) for _ in range(2))
    mask = (torch.arange(12)[None] >= 4).expand(6, 12)
    both = torch.cat([c, r])
    pl = logps(policy, both, mask)
    with torch.no_grad():
        rl = logps(ref, both, mask)
    pi, re_ = pl[:3] - pl[3:], rl[:3] - rl[3:]
    lg = pi - re_
    loss = (-F.logsigmoid(0.1 * lg) * 0.9 - F.logsigmoid(-0.1 * lg) * 0.1).mean()
    loss.backward()
    gn = nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
    opt.step()
    sch.step()
    opt.zero_grad()
    print(s, float(loss).hex(), float(gn).hex(), H(0.1 * (pl - rl).detach()))
torch.save({"state": policy.state_dict(), "step": s}, "policy.pt")
print(M(policy), M(ref), R())
