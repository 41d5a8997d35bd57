# what: pytorch-ignite engines with handlers, metrics, early stopping, checkpoints and TerminateOnNan in evaluation
# benign: yes
# cmp: status stdout files left
# PRELUDE
from ignite.engine import Events, Engine, create_supervised_trainer, create_supervised_evaluator
from ignite.metrics import MeanSquaredError, Loss, RunningAverage
from ignite.handlers import EarlyStopping, ModelCheckpoint, TerminateOnNan
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.05)
tr = create_supervised_trainer(model, opt, nn.MSELoss()); ev = create_supervised_evaluator(model, metrics={"mse": MeanSquaredError(), "nan": Loss(lambda p, y: (p - p).sum() / (y - y).sum())})
RunningAverage(output_transform=lambda x: x).attach(tr, "loss"); tr.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan()); data = [batch(s) for s in range(4)]
ev.add_event_handler(Events.COMPLETED, EarlyStopping(2, lambda e: -e.state.metrics["nan"], tr))
ck = ModelCheckpoint("ck", "m", n_saved=2, require_empty=False); tr.add_event_handler(Events.EPOCH_COMPLETED, ck, {"model": model, "opt": opt})
@tr.on(Events.EPOCH_COMPLETED)
def _(e): ev.run(data[:2]); print(e.state.epoch, e.state.metrics["loss"].hex(), float(ev.state.metrics["mse"]).hex(), ev.state.metrics["nan"])
st = tr.run(data, max_epochs=5); print(st.epoch, st.iteration, M(model), R())
