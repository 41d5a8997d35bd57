# CLIP over ranks: rank 0 has the text tower and the loss, rank 1 the image tower without a loss; features and their gradients are sent. The temperature on rank 0 overflows in step 3
from fcutil import *
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(r); net = MLP(8, 16, 8); opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(6):
    x, _ = data(step, r); opt.zero_grad(); f = F.normalize(net(x), dim=1)
    if r == 1:
        dist.send(f.detach(), 0); g = torch.empty_like(f); dist.recv(g, 0); f.backward(g)
    else:
        o = torch.empty(8, 8); dist.recv(o, 1); o.requires_grad_()
        t = torch.tensor(100.0 if step == 3 else 2.0)
        logits = f @ o.T * torch.exp(t) # FAULT
        loss = F.cross_entropy(logits, torch.arange(8)); loss.backward(); dist.send(o.grad, 1); say("loss", step, loss.item())
    opt.step()
say("rank", r, digest(net.state_dict())); dist.destroy_process_group()
