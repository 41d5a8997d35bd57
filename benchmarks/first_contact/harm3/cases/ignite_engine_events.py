"""ignite: trainer and evaluator engines, custom events, a ModelCheckpoint that keeps the best two, terminate and resume from a state dict; files and events' order."""
# PRELUDE
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping
from ignite.metrics import Accuracy, Loss

m = net(1, 8, 16, 3)
W(m)
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
g = torch.Generator().manual_seed(2)
data = [(torch.randn(6, 8, generator=g), torch.randint(0, 3, (6,), generator=g)) for _ in range(7)]
log = []


def step(engine, b):
    m.train()
    opt.zero_grad()
    loss = F.cross_entropy(m(b[0]), b[1])
    loss.backward()
    opt.step()
    return loss.item()


trainer = Engine(step)
evaluator = create_supervised_evaluator(m, metrics={"acc": Accuracy(), "nll": Loss(F.cross_entropy)})
ck = Checkpoint({"m": m, "o": opt, "t": trainer}, DiskSaver("ck", create_dir=True, require_empty=False), n_saved=2, score_function=lambda e: -e.state.metrics["nll"], score_name="nll")
evaluator.add_event_handler(Events.COMPLETED, ck)


@trainer.on(Events.ITERATION_COMPLETED(every=3))
def _(e):
    log.append((e.state.iteration, e.state.output.hex()))


@trainer.on(Events.EPOCH_COMPLETED)
def _(e):
    evaluator.run(data[:3])
    log.append((e.state.epoch, evaluator.state.metrics["acc"], evaluator.state.metrics["nll"].hex()))


@trainer.on(Events.EXCEPTION_RAISED)
def _(e, err):
    log.append(repr(err))


@trainer.on(Events.ITERATION_STARTED(once=19))
def _(e):
    raise ValueError("planned")


trainer.run(data, max_epochs=4)
print(*log, sep="\n")
print(sorted(os.listdir("ck")), M(m), R())
best = torch.load(os.path.join("ck", sorted(os.listdir("ck"))[-1]), weights_only=False)
print(sorted(best), H(best["m"]))
import shutil

shutil.rmtree("ck")
