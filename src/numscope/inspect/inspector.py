"""The inspector collects one model's planned statistics on scheduled steps; in other steps the model has no hooks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.config import resolve
from numscope.detect.journal import Journal
from numscope.distributed.agree import spread
from numscope.inspect.dynamics import Updates, read_of
from numscope.inspect.further import fill
from numscope.inspect.ranks import Joint, Unwritten
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Active, Inspection, PlannedSite
from numscope.inspect.switches import Switchboard
from numscope.inspect.tally import Tally
from numscope.inspect.unmatched import refuse_unmatched
from numscope.probe.calls import in_backward
from numscope.probe.dynamo import prepare_dynamo
from numscope.probe.layer_names import Structure, layers_of
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import class_name
from numscope.probe.nodes import trains
from numscope.probe.optimizer import guarded
from numscope.probe.optimizers import gradient_of, ids_of
from numscope.probe.step import Step, StepReader
from numscope.records.alert import Alert
from numscope.records.errors import STOPS
from numscope.records.faults import ours, suppress, told, traced
from numscope.records.layer import Layer
from numscope.records.observation import SEEN_IN_CALLS, TENSORS, Observation
from numscope.records.words import few
from numscope.summary.extras import Layout
from numscope.summary.state import Groups

log = logging.getLogger("numscope")

SETTLE_S = 10.0  # for other ranks' parts of the last steps, when a watch ends

_UNSEEN = {
    "local_wgrad": "autograd gave these weights none. They are frozen or unused, or FSDP1 or a fused kernel makes it",
    "attention": "these modules return no probabilities. Set output_attentions=True with eager attention, or need_weights=True",
}


class Inspector(StepReader):
    """Statistics of one model's steps, until ``close``.

    Args:
        wrapper: what the user passed, perhaps a DDP around the module.
        recorder: has the plan and takes the observations.
        journal: of detection on the same model; a tensor that both need is read once.
        owns: the recorder is closed with the inspector.
        strict: a section that selects no layer is an error.

    Raises: UsageError.
    """

    def __init__(
        self,
        probe: ModuleProbe,
        wrapper: nn.Module,
        recorder: Recorder,
        steps: Step,
        journal: Journal | None = None,
        *,
        owns: bool = False,
        strict: bool = True,
    ) -> None:
        self.recorder = recorder
        self._owns_recorder = owns
        self.last: list[Observation] = []  # of the last step that was written
        self._unwritten: deque[Unwritten] = deque()
        self.post: Callable[[Iterable[Alert]], None] | None = None  # takes what users' rules find
        self.closed = False
        self._probe = probe
        self._model = probe.root
        self._steps = steps
        self._journal = journal
        self.joint = Joint(probe.root, wrapper, self.recorder)
        self._prefix = ""
        self._strict = strict
        self._plan = self.recorder.plan_at(steps.number)
        try:
            self._resolve(strict)
        except BaseException:
            if hasattr(self, "_board"):
                self._board.close()
            raise
        self.fault = ""  # the error of the tool's own that ended the statistics early
        self._weights_seen: set[int] = set()
        self._given: dict[int, dict[str, list[float]]] = {}  # by site: what plug-ins' features gave in this step
        self._active = Active()
        self._read: frozenset[int] = frozenset()  # indices of the sites whose tensors this step reads
        steps.add(self)
        self.begin()

    def _resolve(self, strict: bool, again: bool = False) -> None:
        """Find the plan's layers in the model; ``again``: its modules have changed."""
        if again:
            self._board.close()
        self._structure = Structure(self._model)
        names = layers_of(self._model)
        self._modules = {layer: module for module, layer in names.items()}
        self.resolved = resolve(self._plan, list(self._modules), strict=strict and not spread())
        if strict and spread():
            refuse_unmatched(self.resolved.unmatched)
        self._board: Switchboard = Switchboard(self.resolved.switches, self._modules, self.recorder, self._board if again else None)
        collects, customs = [*self.resolved.collects, *self._board.collects()], [*self.resolved.customs, *self._board.customs()]
        self._inspection = Inspection(collects, customs, self.recorder.plugins)
        selected, known_by = self._board.selected(self._inspection.selected()), self._prefix if again else None
        self._prefix = self.joint.prefix = self.recorder.introduce(class_name(self._model), list(self._modules), selected, known_by)
        self._board.introduce(self._prefix)
        sites, readable = self._inspection.sites, self._inspection.readable
        self._in_graphs = self._by_module(self._inspection.hooks(readable))
        ledger = None if self._journal is None else self._journal.ledger
        self._tally = Tally([site.layout for site in sites], self._see_further, ledger)
        if ledger is not None:
            ledger.before_reset = self._merge_rows
        of_parameters = [(site, self._modules[site.layer], site.parameter) for site in sites if site.parameter is not None]
        self._weights = [one for one in of_parameters if one[0].kind == "weight"]
        self._wgrads = [one for one in of_parameters if one[0].kind == "wgrad"]
        states = [one for one in of_parameters if one[0].kind not in (*TENSORS, *SEEN_IN_CALLS)]
        self._updates = Updates(self._weights, states, self._tally, self.joint.part, self._show, self.recorder)

    def _resolve_again(self) -> None:
        """Modules were added or removed, adapters for example: layers and sites change from this step on."""
        self._probe.disarm()
        self._resolve(strict=False, again=True)
        for line in self.resolved.unmatched:
            self.recorder.say_once(line, f"after modules have changed: {line}", logging.WARNING)
        self.joint.forget_sites()
        self._steps.optimizers.forget_parameters()
        self._active = Active()

    # ---- what users call

    def collects(self, layer: str, tensor: str) -> bool:
        """Whether a tensor of a layer is among those that it collects."""
        return not self.closed and any(self._prefix + s.layer.name == layer and s.kind == tensor for s in self._inspection.sites)

    def close(self) -> None:
        """Write the step at work, remove every hook. Safe to call twice."""
        if not self.closed:
            self._finish_begun()
            self.detach()
        self._put_back()
        if self._owns_recorder:
            self.recorder.close()

    # ---- called by the step

    @guarded()
    def begin(self) -> None:
        """Arm the probe for the step to come, or leave the model bare."""
        self._follow()
        active = self._inspection.active(self._steps.number)
        if (active.sites and self._structure.has_changed()) or self._board.is_stale:
            self._resolve_again()
            active = self._inspection.active(self._steps.number)
        self._board.begin(self._steps.number, active)
        if active is self._active and self._probe.is_read:
            self._probe.begin_step()
            return  # as in the step before
        self._active = active
        self._read = frozenset(site.index for site in active.read)
        self._tally.want(active.groups)
        if self._steps.number != self.recorder.first_step:
            prepare_dynamo()  # the model may have been compiled since, and its graph must not outlive these hooks
        hooks = self._by_module(self._inspection.hooks(active.read))
        plain = bytes(site.index in self._read and site.is_plain for site in self._inspection.sites)
        rows = (self._tally.ledger, self._tally.parts, plain, self.observe, self._steps.forward_begins)
        self._probe.arm(hooks, self if active.read else None, self._in_graphs, rows)

    def _by_module(self, layers: Mapping[Layer, Any]) -> dict[nn.Module, Any]:
        return {self._modules[layer]: wanted for layer, wanted in layers.items()}

    def _follow(self) -> None:
        """Take up what an edit of the configuration asks for from this step on."""
        if (follower := self.recorder.follower) is not None:
            follower.look(self._steps.number, lambda plan: resolve(plan, list(self._modules), strict=self._strict and not spread()))
            plan = follower.plan_at(self._steps.number)
            if plan is not self._plan:
                self._plan = plan
                self._resolve_again()

    @guarded()
    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """Whether it is this model's matters where no optimizer ends steps, or nothing of the model but weights is looked at."""
        self._probe.backward_begins()
        if self._tally.anything or (not self._steps.optimizers.any and trains(roots, self._model)):
            self._steps.had_backward = True
            if not self._steps.optimizers.any:  # nobody will say when the weights are about to change
                self._see_weights(None, self._weights)

    @guarded()
    def before_step(self, optimizer: Optimizer) -> None:
        if self._active.sites:
            self._see_weights(ids_of(optimizer), (*self._weights, *self._wgrads))
            self._updates.before(optimizer, self._read)

    @guarded()
    def after_step(self, optimizer: Optimizer) -> None:
        if self._journal is not None:  # it reads the weights now, and the next step's are these
            coming = self._inspection.active(self._steps.number + 1)
            wanted = any(site.kind == "weight" for site in coming.read)
            self._journal.weights.ledger.groups = coming.groups if wanted else Groups.HEALTH
        self._updates.after(optimizer, self._read)

    def skipped_step(self, optimizer: Optimizer) -> None:
        """GradScaler skips this step: its gradients are read, its weights do not change."""
        self.before_step(optimizer)
        self._updates.forget()

    @guarded(*STOPS)
    def _finish_begun(self) -> None:
        """At close: write what there is, and the step at work, if anything of it was seen."""
        self._settle()
        if self._tally.anything or self._board.anything or self._steps.has_stepped or self._steps.had_backward:
            self.end(True)

    @guarded()
    def _merge_rows(self) -> None:
        """Merge what detection's ledger is about to forget."""
        self._tally.merge()

    @guarded(*STOPS)
    def end(self, closing: bool) -> None:
        """The step is over: read its numbers, begin to merge them over ranks, and pass those that are merged to the recorder."""
        try:
            if self._active.sites or self._reduces(self._steps.number):
                self._see_weights(None, (*self._weights, *self._wgrads))
                self._probe.forget_step()
                self._record(closing)
                self._tally.reset()
                self._weights_seen.clear()
                self._given = {}
                self._updates.forget()
            alerts = self._write(closing)
        except ours() as error:
            self.failed(error)
            return
        self._board.end()
        if self.post is not None:
            self.post(alerts)

    @guarded(*STOPS)
    def settle(self) -> None:
        """Wait a while for numbers that are being merged over ranks, and write them."""
        self._settle()

    def _settle(self) -> None:
        alerts = self._write(True)
        if self.post is not None:
            self.post(alerts)

    def _write(self, closing: bool) -> list[Alert]:
        """Write the steps that wait for no rank, in order; at the end wait a while, and write all. Returns: what rules say of them."""
        alerts: list[Alert] = []
        if closing:
            self.joint.settle(SETTLE_S)
        while self._unwritten and (closing or self._unwritten[0].is_over):
            self.last = self._unwritten.popleft().observations()
            self.recorder.write(self.last)
            alerts += self.recorder.rules.read(self.last)
        return alerts

    def keep(self, rows: Sequence[Observation]) -> None:
        """Write rows that others have made of this model."""
        self.recorder.write([row._replace(layer=self._prefix + row.layer) for row in rows])

    def _record(self, closing: bool) -> None:
        step, given, merging = self._steps.number, self._given, None
        observed = partial(self._inspection.observations, step, self.recorder.rank, self._prefix)
        for counted, first, cells in self._board.counted():
            self._tally.merge_counted(counted.index, first, cells)
        seen = self._tally.read()
        for site, what in self._tally.unreadable.items():
            found = self._inspection.sites[site]
            where = f"{self._prefix}{found.layer.name}: its {found.tensor}"
            self.recorder.say_once(("unreadable", site), f"{where} has no numbers to read: {what}")
        self._say_unseen(seen)
        wanted_now = {site.index: site for site in self._active.sites}
        alone = [(wanted_now[i], one) for i, one in seen.items() if i in wanted_now]
        collects = self._inspection.collects_at
        if closing or not spread():  # at close others may be elsewhere
            wanted = [pair for pair in alone if pair[0].index in self._given or collects(pair[0], step, reduced=None)]
            own = observed(given, wanted, reduced=None)
        else:
            mergeable = [pair for pair in alone if collects(pair[0], step, reduced=True)]
            shared = {s.index for s, _ in mergeable}
            mine = [pair for pair in alone if self._writes_own(pair[0], step) or pair[0].index in given.keys() - shared]
            # What plug-ins gave goes with the merged numbers: a further row would count them twice.
            own = observed({site: named for site, named in given.items() if site not in shared}, mine, reduced=False)
            if self._reduces(step):
                merging = self.joint.begin(mergeable, step)
        self._unwritten.append(Unwritten(own, merging, partial(observed, given)))

    def _say_unseen(self, seen: Collection[int]) -> None:
        """Name, once, the sites that were asked for and not seen in a whole step."""
        unseen: dict[str, list[str]] = {}
        for site in self._active.read if self._steps.had_backward or self._steps.has_stepped else ():
            if site.kind in SEEN_IN_CALLS and site.index not in seen:
                unseen.setdefault(site.kind, []).append(self._prefix + site.layer.name)
        for kind, layers in unseen.items():
            self.recorder.say_once((kind, *layers), f"no {kind} of {few(layers, 4)}: {_UNSEEN[kind]}", logging.WARNING)

    # ---- tensors

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        """The probe shows a tensor; of a distributed one, this rank's part counts."""
        if not in_backward():
            self._steps.forward_begins()
        if site in self._read:
            self._show(self._inspection.sites[site], tensor, shape)

    def _show(self, site: PlannedSite, tensor: Tensor, shape: torch.Size | None = None) -> None:
        part = self.joint.part(site, tensor)
        if part is None:
            return
        self._tally.observe(site.index, part, shape)
        if site.customs or site.statistics:
            self._see_custom(site, part if shape is None else part.reshape(shape))

    def _see_further(self, site: int, tensor: Tensor, cells: Tensor, layout: Layout) -> None:
        found = self._inspection.sites[site]

        def whole() -> Tensor:
            parameter: Parameter = getattr(self._modules[found.layer], found.parameter or "")
            gradient = gradient_of(parameter) if found.kind == "wgrad" else None
            return parameter if gradient is None else gradient

        how: dict[str, Any] = {"joint": self.joint, "cast_to": self._board.format_of(found), "merge": self._tally.merge_cells}
        for left_out in fill(found, tensor, whole, cells, layout, **how):
            self.recorder.say_once((left_out, site), f"{self._prefix}{found.layer.name}: {left_out}", logging.WARNING)

    def _see_weights(self, only: Set[int] | None, of: Sequence[tuple[PlannedSite, nn.Module, str]]) -> None:
        """Weights and their gradients as the optimizer is about to use them; ``only`` the parameters of some ids."""
        # Weights that an optimizer takes are as it left them, and detection has read them then.
        rows = None if self._journal is None or only is None else self._journal.weights
        kept, others = list[tuple[PlannedSite, Tensor, Tensor]](), list[tuple[PlannedSite, Tensor, Tensor]]()  # with this rank's part
        for site, parameter in read_of(of, self._read - self._weights_seen, only):
            tensor = parameter if site.kind == "weight" else gradient_of(parameter)
            if tensor is None:
                continue
            self._weights_seen.add(site.index)
            part = self.joint.part(site, tensor)
            if part is not None:
                is_kept = rows is not None and site.kind == "weight" and part is getattr(tensor, "_local_tensor", tensor)
                (kept if is_kept else others).append((site, tensor, part))
        if rows is not None and kept:
            sites, parameters, parts = zip(*kept, strict=True)
            self._tally.take([site.index for site in sites], parts, rows, parameters)
        self._tally.observe_many([site.index for site, _, _ in others], [part for _, _, part in others])
        for site, _, part in (*kept, *others):
            if site.customs or site.statistics:
                self._see_custom(site, part)

    def _see_custom(self, site: PlannedSite, tensor: Tensor) -> None:
        """Show a tensor to the plug-ins that want it."""
        plugins, step = self.recorder.plugins, self._steps.number
        for name, first in site.statistics:
            cells = plugins.statistics[name].cells(tensor)
            if cells is not None:
                self._tally.merge_cells(site.index, first, cells)
        for custom in site.customs:
            if custom.schedule.active(step) and custom.feature not in plugins.features:
                self._board.dump(site, tensor)  # the only one that wants tensors beside plug-ins
            elif custom.schedule.active(step):
                given = plugins.features[custom.feature](
                    self._prefix + site.layer.name, site.tensor, tensor.detach(), step, custom.settings
                )
                for label, value in given.items():
                    self._given.setdefault(site.index, {}).setdefault(label, []).append(value)

    def failed(self, error: Exception) -> None:
        """The tool itself failed: it says so once and its hooks are gone; training goes on, its precision as it is switched now."""
        if self.closed:
            return
        self.fault = told(error)
        with suppress(Exception):  # it may be what has failed
            self._board.stop_statistics()
        with suppress(Exception):
            self._settle()
        self.recorder.say(f"no more statistics of {class_name(self._model)}: {traced(error)}", logging.ERROR)
        self.detach()

    def _writes_own(self, site: PlannedSite, step: int) -> bool:
        """Whether this rank writes a site's numbers as it has them: of copies, only one rank does where readers merge."""
        hows = {collect.reduce for collect in self._inspection.collects_at(site, step, reduced=False)}
        return False in hows or ("when read" in hows and self.joint.is_first(site))

    def _reduces(self, step: int) -> bool:
        """Whether ranks exchange numbers at a step; all ranks must give the same answer."""
        if self.joint.spans_models:
            collects, switches = self._plan.collects, self._plan.switches
        else:
            collects, switches = tuple(c for c, _ in self.resolved.collects), tuple(s for s, _ in self.resolved.switches)
        counting = any("stats" in switch.settings and switch.schedule.active(step) for switch in switches)
        return counting or any(c.reduce is True and c.schedule.active(step) for c in collects)

    def detach(self) -> None:
        """Take every hook away, put plans back, write nothing."""
        self.closed = True
        self._steps.remove(self)
        self._probe.disarm()
        self._tally.reset()
        self._tally.want(Groups.HEALTH)
        if self._journal is not None:  # detection reads what it needs without statistics
            self._journal.weights.ledger.groups = Groups.HEALTH
            self.go_alone()
        self._updates.forget()
        if not self.fault:
            self._put_back()
        self.joint.close(failed=bool(self.fault))  # last: it asks others

    def go_alone(self) -> None:
        """Detection has ended and no longer resets the shared rows."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.ledger.before_reset = None

    def _put_back(self) -> None:
        try:
            self._board.close()
        except ours() as error:
            self.recorder.say(f"switches may still be at work: {told(error)}", logging.ERROR)
