"own arithmetic: gradients of the float32 twin for the output gradient that the run's output received"
import copy, torch
class Plain(torch.nn.Linear):
    def forward(s, x): return torch.nn.functional.linear(x, s.weight, s.bias)
class Truth:
    def __init__(s, model):
        s.twin = copy.deepcopy(model).float(); s.model = model
        for q in s.twin.modules():
            if type(q) is torch.nn.Linear: q.__class__ = Plain
    def before(s, *x):
        s.twin.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in s.model.state_dict().items()}); s.twin.train(s.model.training); s.x = x
    def after(s, grads_out, step, names=None, scale=1.0):
        "grads_out: the gradient of the model's output in the run"
        low = {n: p.grad.double().clone() for n, p in s.model.named_parameters() if p.grad is not None}
        s.twin.zero_grad()
        with torch.autocast("cpu", enabled=False):
            y = s.twin(*[t.float() if t.is_floating_point() else t for t in s.x]); y.backward(grads_out.float())
        hi = {n: p.grad.double() for n, p in s.twin.named_parameters() if p.grad is not None}
        l = torch.cat([low[n].flatten() for n in hi]); h = torch.cat([hi[n].flatten() for n in hi])
        e = (l - h).norm() / h.norm(); c = (l @ h) / (l.norm() * h.norm()).clamp(min=1e-300); f = (l @ h) / (h @ h)
        worst = max(hi, key=lambda n: (low[n] - hi[n]).norm()); w = (low[worst] - hi[worst]).norm() / hi[worst].norm()
        print(f"TRUTH step {step}: error {100*e:.2f}% cosine {c:.4f} factor {f:.3f}, most {worst} {100*w:.2f}%; energy lost {100*(1-c*c):.0f}%", flush=True)
