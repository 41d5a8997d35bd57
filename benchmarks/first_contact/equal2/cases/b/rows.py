# part B, log-probabilities: what is done to the rows, positions, tokens and sampling of one policy
import json, os, sys, warnings
warnings.filterwarnings("ignore"); os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel
import numscope
torch.set_num_threads(1); torch.manual_seed(1); V, T, P, PAD = 80, 36, 8, 0
model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=96, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2))
A, B = (torch.randperm(V - 3, generator=torch.Generator().manual_seed(k)) + 3 for k in (1, 2))
def corpus(n, seed):  # the next token comes from the last one, by another table at even and at odd positions
    g = torch.Generator().manual_seed(seed); t = torch.randint(3, V, (n, T), generator=g)
    for i in range(1, T): t[:, i] = torch.where(torch.rand(n, generator=g) < 0.8, (A if i % 2 else B)[t[:, i - 1] - 3], t[:, i])
    return t
if "--flat" in sys.argv:  # a task that the model does not learn: nearly the same probabilities whatever came before
    def corpus(n, seed):
        g = torch.Generator().manual_seed(seed); t = torch.randint(3, V, (n, T), generator=g)
        for i in range(2, T): t[:, i] = torch.where(torch.rand(n, generator=g) < 0.7, (t[:, i - 1] * 7 + t[:, i - 2]) % (V - 3) + 3, t[:, i])
        return t
opt = torch.optim.AdamW(model.parameters(), 3e-3)
for s in range(150 if "--flat" in sys.argv else 400): x = corpus(16, s); model(input_ids=x, labels=x).loss.backward(); opt.step(); opt.zero_grad()
model.eval(); torch.set_grad_enabled(False)
tokens = torch.cat([corpus(12, 999)[:, :P], torch.zeros(12, T - P, dtype=torch.long)], 1); g = torch.Generator().manual_seed(4)
for i in range(P, T): tokens[:, i] = torch.multinomial(model(input_ids=tokens[:, :i]).logits[:, -1].softmax(-1), 1, generator=g)[:, 0]
lengths = torch.randint(12, T - P + 1, (12,), generator=g); place = torch.arange(T - P)[None]; mask = (place < lengths[:, None]); tokens[torch.arange(12), P + lengths - 1] = 2
def forward(t, **k): return model(input_ids=t, **k).logits.float()
def pick(l, t): return l.log_softmax(-1).gather(-1, t[..., None])[..., 0]
logits = forward(tokens)[:, P - 1:-1]; done = tokens[:, P:]; own = pick(logits, done); answers = {}; print('mean of own', own[mask].mean().item())
def ask(name, a, b, **k):
    k = {"mask": mask, "tokens": done, "logits": logits, **k}; k = {q: v for q, v in k.items() if v is not None}
    c = numscope.compare_logprobs(a, b, **k); answers[name] = [bool(c), str(c), c.kind, c.is_certain]; print("===", name, bool(c), c.kind, "certain" if c.is_certain else "question", "\n    ", str(c).replace("\n", "\n     "), flush=True)
def keep_top(l, p):
    s, i = l.softmax(-1).sort(-1, descending=True); drop = s.cumsum(-1) - s > p; return l.masked_fill(torch.zeros_like(drop).scatter(-1, i, drop), float("-inf"))
ask("F31 engine's are of temperature 0.8, the trainer divides by nothing (verl, TRL)", own, pick(logits / 0.8, done))
ask("F32 top-p 0.9 renormalized (logprobs_mode processed)", own, pick(keep_top(logits, 0.9), done))
ask("F33 temperature 1.2 and top-k 20", own, pick((logits / 1.2).masked_fill(logits < logits.topk(20).values[..., -1:], float("-inf")), done))
ask("F34 logits not shifted", own, pick(forward(tokens)[:, P:], done))
ask("F35 logits not shifted, no tokens told", own[:, 1:], own[:, :-1], mask=mask[:, 1:], tokens=None, logits=None)
ask("F36 rows of a group in another order", own, own[torch.randperm(12, generator=g)])
bos = torch.cat([torch.full((12, 1), 1), tokens], 1); ask("F37 BOS twice", own, pick(forward(bos)[:, P:-1], done))
left = torch.cat([torch.full((12, 6), PAD), tokens], 1); ask("F38 left padding is attended to", own, pick(forward(left)[:, P + 5:-1], done))
am = (torch.arange(T + 6)[None] >= 6).long().expand(12, -1); ask("F39 left padding masked, positions count it", own, pick(forward(left, attention_mask=am, position_ids=torch.arange(T + 6)[None].expand(12, -1))[:, P + 5:-1], done))
re = done.clone(); re[::3, 5] = (re[::3, 5] + 1) % V; full = torch.cat([tokens[:, :P], re], 1); ask("F40 tokens changed when text was tokenized again", own, pick(forward(full)[:, P - 1:-1], re))
pen = logits.clone()
for i in range(12):
    for j in range(T - P): seen = tokens[i, :P + j].unique(); v = pen[i, j, seen]; pen[i, j, seen] = torch.where(v > 0, v / 1.3, v * 1.3)
ask("F41 repetition penalty 1.3", own, pick(pen, done))
wrong = own.clone(); wrong[torch.arange(12), lengths - 1] = 0.0; ask("F42 the end token's is filled with 0", own, wrong)
ask("F43 base 10", own, own / 2.302585)
ask("F44 running sums in place of each token's", own, own.cumsum(1))
ask("F45 greedy: top-k 1, all zero", own, torch.zeros_like(own))
tail = own.clone(); restart = pick(forward(tokens, position_ids=torch.arange(T)[None].expand(12, -1) % 20)[:, P - 1:-1], done); ask("F46 positions start again after 20 (cache block)", own, restart)
short = [own[i, : lengths[i]] for i in range(12)]; ask("F47 engine drops the end token", short, [r[:-1] for r in short], mask=None, tokens=None, logits=None)
nan = own.clone(); nan[3, 4] = float("nan"); nan[5, 2] = float("-inf"); ask("F48 a nan and a -inf", own, nan)
biased = logits.clone(); biased[..., 2] -= 100; ask("F49 min_tokens: the end token is forbidden", own, pick(biased, done))
minp = logits.masked_fill(logits.softmax(-1) < 0.05 * logits.softmax(-1).amax(-1, keepdim=True), float("-inf")); ask("F50 min-p 0.05", own, pick(minp, done))
part = own.clone(); part[4:6] = pick(forward(torch.cat([tokens[6:8, :P], tokens[4:6, P:]], 1))[:, P - 1:-1], done[4:6]); ask("F51 two rows have another's prompt", own, part)
# healthy
ask("H17 left padding with mask and positions", own, pick(forward(left, attention_mask=am, position_ids=(am.cumsum(1) - 1).clamp(min=0))[:, P + 5:-1], done))
ask("H18 top-p 0.9 on purpose, told as candidate", own, pick(keep_top(logits, 0.9), done), candidates={"own under top-p 0.9": pick(keep_top(logits, 0.9), done)})
ask("H19 temperature 0.8 on both sides", pick(logits / 0.8, done), pick((logits / 0.8).double(), done).float(), logits=logits / 0.8)
junk = own.masked_fill(~mask, float("nan")); ask("H20 nan behind the end of rows, masked", own, junk)
ask("H21 rounded to bfloat16 on the wire", own, own.bfloat16().float())
ask("H22 lists of rows of their lengths", short, [r.tolist() for r in short], mask=None, tokens=None, logits=None)
ask("H23 logits in float16", own, pick(logits.half().float(), done))
m16 = GPT2LMHeadModel(model.config); m16.load_state_dict(model.state_dict()); m16 = m16.bfloat16().eval(); b16 = pick(m16(input_ids=tokens).logits.float()[:, P - 1:-1], done); ask("H24 bfloat16 model, nothing told", own, b16)
ask("H25 top-k 50 that cuts nothing sampled, raw mode", own, own.clone(), logits=None)
json.dump(answers, open("b_rows_flat.json" if "--flat" in sys.argv else "b_rows.json", "w"))
