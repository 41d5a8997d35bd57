"""Horovod's way: a class of the optimizer's own name is made by type(), its __dict__ copied from a wrapper; gradients are taken at AccumulateGrad nodes (expand_as, next_functions), "reduced" by a thread, waited for in step, with synchronize() and skip_synchronize, backward_passes_per_step 2."""
import contextlib, queue, threading
# PRELUDE
class _Distributed(torch.optim.Optimizer):
    def __init__(self, params, named, passes):
        super(self.__class__, self).__init__(params)
        self._names = {p: n for n, p in named}
        self._delay = {p: passes for g in self.param_groups for p in g["params"]}
        self._passes, self._handles, self._accs, self._sync, self._order = passes, {}, [], True, []
        self._jobs = queue.Queue()
        threading.Thread(target=self._reduce, daemon=True).start()
        for g in self.param_groups:
            for p in g["params"]:
                p.grad = p.data.new(p.size()).zero_()
                acc = p.expand_as(p).grad_fn.next_functions[0][0]
                acc.register_hook(self._hook(p))
                self._accs.append(acc)

    def _reduce(self):
        while True:
            g, done = self._jobs.get()
            with torch.no_grad():
                g.mul_(2).div_(2).add_(0.0)
            done.set()

    def _hook(self, p):
        def hook(*ignore):
            assert not p.grad.requires_grad
            self._delay[p] -= 1
            if self._delay[p] == 0:
                done = threading.Event()
                self._order.append(self._names[p])
                self._jobs.put((p.grad, done))
                self._handles[p] = done

        return hook

    def synchronize(self):
        for p, done in self._handles.items():
            done.wait()
            self._delay[p] = self._passes
        self._handles.clear()

    @contextlib.contextmanager
    def skip_synchronize(self):
        self._sync = False
        yield
        self._sync = True

    def step(self, closure=None):
        if self._sync:
            self.synchronize()
        return super(self.__class__, self).step(closure)

    def zero_grad(self):
        if self._handles:
            raise AssertionError("zero_grad between backward and step")
        return super(self.__class__, self).zero_grad(set_to_none=False)


def Distributed(opt, named, passes=1):
    cls = type(opt.__class__.__name__, (opt.__class__,), dict(_Distributed.__dict__))
    return cls(opt.param_groups, named, passes)


for base, kw in ((torch.optim.SGD, dict(lr=0.05, momentum=0.9)), (torch.optim.Adam, dict(lr=1e-2))):
    for passes in (1, 2):
        m = net(1)
        W(m)
        opt = Distributed(base(m.parameters(), **kw), m.named_parameters(), passes)
        for s in range(5):
            opt.zero_grad()
            for k in range(passes):
                x, y = batch(10 * s + k)
                loss = F.mse_loss(m(x), y) / passes
                loss.backward()
            if s == 3:
                opt.synchronize()
                nn.utils.clip_grad_norm_(m.parameters(), 0.5)
                with opt.skip_synchronize():
                    opt.step()
            elif s == 4:
                try:
                    opt.zero_grad()
                except AssertionError as e:
                    print(e)
                opt.step()
            else:
                opt.step()
            print(type(opt).__name__, passes, s, loss.item().hex(), M(m), opt._order[-6:])
        print(H(opt.state_dict()), len(opt._order), type(opt).__mro__[1].__name__)
