"""After a closed watch: types of the module's dicts, attributes of modules, parameters, optimizers and of torch's own classes as before.

source: VainF/Torch-Pruning#374 (hooks must be removed), wandb/wandb PR 6503
meta: {"entrances": ["watch"]}
"""
import torch
from torch import nn
from fcw import mlp, say, seed, train, watch


def facts(model, opt):
    say([sorted(m.__dict__) for m in model.modules()])
    say([[type(v).__name__ for v in m.__dict__.values()] for m in model.modules()])
    say([(sorted(p.__dict__), p._backward_hooks, p._post_accumulate_grad_hooks) for p in model.parameters()])
    say(sorted(opt.__dict__), [len(v) for v in opt.__dict__.values() if isinstance(v, dict)], opt.step.__qualname__, type(opt).step.__qualname__)
    for f in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad, nn.Module.__call__, nn.Module.compile, nn.Module.to, torch.optim.Optimizer.zero_grad, torch.optim.Optimizer.__init__, torch.amp.GradScaler.step, torch.nn.utils.clip_grad_norm_, torch.compile, torch.save):
        say(f.__module__, f.__qualname__, f.__code__.co_filename.rsplit("/", 2)[-2:] if hasattr(f, "__code__") else "", hasattr(f, "__wrapped__"))
    say(torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), len(nn.modules.module._global_forward_hooks), len(nn.modules.module._global_forward_pre_hooks))
    import multiprocessing.process as p
    import warnings

    say(p.BaseProcess.start.__module__, warnings.warn.__module__)


seed(303)
model = mlp()
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 1)
scope = watch(model)
train(model, opt, 3)
torch.optim.Adam(model.parameters())
scope.close()
train(model, opt, 1)
facts(model, opt)
