#: what: torch.compile with the eager backend; after warm-up set_stance('fail_on_recompile'), then 'force_eager' for evaluation, and back
#: source: https://docs.pytorch.org/tutorials/recipes/torch_compiler_set_stance_tutorial.html
# PRELUDE
m = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)); watch(m); c = torch.compile(m, backend="aot_eager"); opt = torch.optim.AdamW(m.parameters(), 1e-3); step_lr = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
def train(n):
    for s in range(n): x = torch.randn(8, 6); l = F.cross_entropy(c(x), torch.randint(3, (8,))); opt.zero_grad(); l.backward(); opt.step(); step_lr.step(); print(l.item())
train(3)
with torch.compiler.set_stance("fail_on_recompile"): train(5)
m.eval()
with torch.no_grad(), torch.compiler.set_stance("force_eager"): print(sha(c(torch.randn(3, 6))))
m.train(); train(3); show(m, opt)
