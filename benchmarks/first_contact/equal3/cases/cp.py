"""Context parallel by hand: each rank has a part of every sequence. Keys are gathered (also zigzag), go round a ring, or heads are exchanged (Ulysses)."""
from littlelm import *

how, fault = arg("--how", "single"), arg("--fault")
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
if how == "zigzag":
    four = torch.arange(T).chunk(2 * WORLD)
    place = torch.cat([four[RANK], four[2 * WORLD - 1 - RANK]])
else:
    place = torch.arange(T).chunk(WORLD)[RANK]


class GatherKeys(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(WORLD)]
        dist.all_gather(out, x.contiguous())
        return torch.cat(out, 2)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(WORLD, 2)[RANK]


def everyone(x):
    out = [torch.empty_like(x) for _ in range(WORLD)]
    dist.all_gather(out, x.contiguous())
    return torch.cat(out)


class Exchange(torch.autograd.Function):
    """[batch, heads, part, d] to [batch, some heads, whole, d], or back."""

    @staticmethod
    def go(x, back):
        dims = (2, 1) if back else (1, 2)
        sent = [c.contiguous() for c in x.chunk(WORLD, dims[0])]
        got = [torch.empty_like(c) for c in sent]
        dist.all_to_all_single(torch.stack(got), torch.stack(sent)) if False else None
        block = torch.stack(sent)
        out = torch.empty_like(block)
        dist.all_to_all_single(out, block)
        return torch.cat(list(out), dims[1])

    @staticmethod
    def forward(ctx, x, back):
        ctx.back = back
        return Exchange.go(x, back)

    @staticmethod
    def backward(ctx, g):
        return Exchange.go(g, not ctx.back), None


class Part(Block):
    def attend(self, x):
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        if how == "ulysses":
            q, k, v = (Exchange.apply(t, False) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return Exchange.apply(y, True).transpose(1, 2).flatten(2)
        if fault == "detach-kv":
            whole = [torch.cat([t if r == RANK else e for r, e in enumerate(everyone(t.detach()).chunk(WORLD))], 2) for t in (k, v)]
        else:
            whole = [GatherKeys.apply(t) for t in (k, v)]
        keys = everyone(place)
        if fault == "mask-local":
            mask = torch.arange(len(place))[:, None] >= torch.arange(T)[None]
        else:
            mask = place[:, None] >= keys[None]
        y = F.scaled_dot_product_attention(q, *whole, attn_mask=mask)
        return y.transpose(1, 2).flatten(2)


class Placed(LM):
    places = None

    def forward(self, tokens, positions=None):
        return self.head(self.trunk(tokens, self.places if positions is None else positions))


model = Placed(block=Block if how == "single" else Part)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(STEPS):
    tokens, labels = batch(step)
    count = (labels != -100).sum()
    if fault == "label-cut":  # each part shifts its own tokens: the last one of a part has no label
        for at in range(T // WORLD - 1, T - 1, T // WORLD):
            labels[:, at] = -100
    tokens, labels = tokens[:, place], labels[:, place]
    positions = place - place.min() if fault == "restart" else place
    if "--inside" in sys.argv:  # the model knows its places itself
        model.places = positions
        logits = model(tokens)
    else:
        logits = model(tokens, positions)
    loss = ce(logits, labels)
    seen = loss.item()
    own = (labels != -100).sum()
    if fault == "local-count":
        loss = loss / own.clamp(min=1) / WORLD
    elif fault == "cp-scale":
        loss = loss / count * WORLD
    else:
        loss = loss / count
    loss.backward()
    if WORLD > 1:
        for name, p in model.named_parameters():
            if fault == "skip-norm" and "norm" in name:
                continue
            if fault == "avg-kv" and name.endswith(("k.weight", "v.weight", "k.bias", "v.bias")):
                dist.all_reduce(p.grad)
                p.grad /= WORLD
                continue
            dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    report(step, total(seen, own), model)
