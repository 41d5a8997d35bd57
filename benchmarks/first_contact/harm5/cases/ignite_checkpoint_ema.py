"""ignite: supervised trainer with EMAHandler, Checkpoint and DiskSaver, TerminateOnNan, ParamScheduler, early stopping, resume from a checkpoint, an exception raised inside an event and handled."""
# PRELUDE
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import EMAHandler, Checkpoint, DiskSaver, TerminateOnNan, EarlyStopping, LinearCyclicalScheduler, global_step_from_engine
from ignite.metrics import Loss, MeanSquaredError, RunningAverage
def setup(seed):
    m = net(seed)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    def step(e, b):
        m.train()
        opt.zero_grad()
        loss = F.mse_loss(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()
    t = Engine(step)
    ema = EMAHandler(m, momentum=0.1)
    ema.attach(t, name="mom", event=Events.ITERATION_COMPLETED(every=2))
    t.add_event_handler(Events.ITERATION_STARTED, LinearCyclicalScheduler(opt, "lr", 0.01, 0.1, 8))
    t.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
    RunningAverage(output_transform=lambda x: x).attach(t, "ra")
    ev = create_supervised_evaluator(ema.ema_model, metrics={"mse": MeanSquaredError(), "l": Loss(F.mse_loss)})
    ev.add_event_handler(Events.COMPLETED, EarlyStopping(5, lambda e: -e.state.metrics["mse"], t))
    return m, opt, t, ema, ev
data = [batch(i) for i in range(6)]
m, opt, t, ema, ev = setup(2)
ck = Checkpoint({"model": m, "opt": opt, "trainer": t, "ema": ema.ema_model}, DiskSaver("ck", require_empty=False), n_saved=2, global_step_transform=global_step_from_engine(t))
@t.on(Events.EPOCH_COMPLETED)
def ep(e):
    ev.run(data[:3])
    ck(e)
    print(e.state.epoch, {k: float(v).hex() for k, v in {**e.state.metrics, **ev.state.metrics}.items()})
@t.on(Events.ITERATION_COMPLETED(once=15))
def bad(e):
    raise RuntimeError("inside an event")
@t.on(Events.EXCEPTION_RAISED)
def ex(e, err):
    print("exception", err)
    e.terminate()
t.run(data, max_epochs=4)
print(M(m), H(dict(ema.ema_model.state_dict())), sorted(os.listdir("ck")))
m2, opt2, t2, ema2, ev2 = setup(5)
Checkpoint.load_objects({"model": m2, "opt": opt2, "trainer": t2, "ema": ema2.ema_model}, torch.load("ck/" + sorted(os.listdir("ck"))[-1]))
t2.run(data, max_epochs=4)
print(M(m2), t2.state.iteration, R())
