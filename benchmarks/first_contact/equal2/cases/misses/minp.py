# B F50: a peaked policy's min-p 0.05, renormalized, is called a temperature, as certain; the finite numbers of b are those of min-p 0.05 exactly
import torch, numscope
torch.manual_seed(0)
logits = torch.zeros(12, 28, 80); logits[..., 0] = 5.8  # one token of about 0.8, the others 0.0025 each
logits[::4, ::9, 1] = 3.2  # now and then a second one, 0.07 of the first
tokens = torch.distributions.Categorical(logits=logits).sample(); tokens[::4, ::9] = 0
pick = lambda l: l.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
p = logits.softmax(-1); minp = logits.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), float("-inf"))
found = numscope.compare_logprobs(pick(logits), pick(minp), tokens=tokens, logits=logits)
print(found.kind, found.is_certain, found)
