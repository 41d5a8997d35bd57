"""Global and own step pre/post hooks of optimizers: order, arguments changed by a pre-hook, handles' ids.

Source: https://github.com/NVIDIA/apex/pull/553
"""
# PRELUDE
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
log = []
register_optimizer_step_pre_hook(lambda o, a, k: log.append("global pre"))
register_optimizer_step_post_hook(lambda o, a, k: log.append("global post"))
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
opt.register_step_pre_hook(lambda o, a, k: log.append("own pre"))
opt.register_step_post_hook(lambda o, a, k: log.append("own post"))
opt.register_state_dict_post_hook(lambda o, sd: log.append("sd"))
print(train(m, opt, 2), log, type(opt).__name__, opt.step.__name__, opt.step.__qualname__)
torch.save(opt.state_dict(), "opt.pt"); print(log[-1], M(m), len(opt._optimizer_step_pre_hooks), repr(opt))
