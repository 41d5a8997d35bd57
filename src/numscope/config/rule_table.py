"""The built-in rules: their names and settings in configurations.

New rules and checks need a row here; this table loads no torch, so a configuration is checked before a script's first line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A built-in rule in configurations."""

    name: str  # in words; users' own rules have names without spaces
    meaning: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # defaults by name; a configuration's value has the default's type


_SPECS = (
    # over the rows of each step
    RuleSpec("overflow ahead", "a tensor's magnitude grows towards the end of its dtype's range", {"bits": 5.0, "steps": 50, "most": 1}),
    RuleSpec("divergence ahead", "weights and outputs grow faster than steps of one size make them grow", {"limit": 1.0}),
    RuleSpec("loss spike", "the loss is above its band", {"band": 8.0}),
    RuleSpec("loss runs away", "the loss goes up to ``times`` its first values, or ever faster below zero", {"times": 1.5}),
    RuleSpec("gradients vanish", "gradients sink through depth", {"bits": 20.0}),
    RuleSpec("gradients underflow", "most float16 gradients have no normal number: the loss needs a scale"),
    RuleSpec("scale falls", "GradScaler skips steps; ``finding`` of them in a row are a finding", {"skips": 4, "finding": 10}),
    RuleSpec("dead gradients", "all gradients are exactly zero; ``finding`` such steps in a row are a finding", {"finding": 10}),
    RuleSpec("fp8 out of range", "too many elements of an operand underflow or saturate", {"underflow_pct": 20.0, "overflow_pct": 1.0}),
    # steps that are done again (--check)
    RuleSpec("step is not reproducible", "a call gives other bits when it is done again"),
    RuleSpec("suspected hardware", "a call once gave other bits, which nothing explains"),
    RuleSpec("ranks compute differently", "ranks of equal weights get other bits from the same call"),
    RuleSpec("compiled code differs", "compiled code gives an output or a gradient that eager code does not give"),
    RuleSpec("wrong result", "an operation does not give what its operands give in float64, by more than rounding"),
    RuleSpec("precision is lost", "what a call returns, or its gradient, is rounding to a large part"),
    RuleSpec("wrong gradient", "an autograd.Function's backward is not the derivative of its forward"),
    RuleSpec("gradient is mostly rounding", "low precision turns a step's gradient away from the one in high precision"),
    # the loop and the model's structure
    RuleSpec("parameter without optimizer", "a trainable parameter is in no optimizer"),
    RuleSpec("parameter without gradient", "a trainable parameter gets no gradient"),
    RuleSpec("weight does not move", "a weight is the same after the optimizer's step"),
    RuleSpec("nothing moves", "gradients arrive for many steps, no optimizer is known, and no weight changes"),
    RuleSpec("frozen parameter moves", "a parameter that needs no gradient is changed by the optimizer"),
    RuleSpec("almost all is frozen", "few parameters of a model are trained, and none of its matrices"),
    RuleSpec("adapters are frozen", "the adapters of a model are frozen, and other weights are trained"),
    RuleSpec("learning rate is 0", "an optimizer steps with a learning rate of 0"),
    RuleSpec("weight changes between steps", "one bit of a weight flips between the optimizer's step and the next call"),
    RuleSpec("copy does not follow", "an average or a target network does not move, in all or in part"),
    RuleSpec("copy is the model", "a copy of the model, such as a target network, shares its memory"),
    RuleSpec("untied weights", "weights that were tied no longer are"),
    RuleSpec("hooks pile up", "a module has more and more hooks with the same code"),
    RuleSpec("one layer many times", "one module with weights stands in a list several times"),
    RuleSpec("eval mode", "a model trains in evaluation mode"),
    RuleSpec("train mode in evaluation", "a model is called without gradients, and in training mode"),
    RuleSpec("dropout in evaluation", "a functional dropout is not told whether the model trains, and is active in evaluation mode"),
    RuleSpec("autocast without effect", "autocast is on, and no output has its dtype"),
    RuleSpec("autocast is never left", "autocast stays on over an optimizer's step and the next call, which gets old casts of weights"),
    RuleSpec("frozen batch norm moves", "a batch norm with frozen weights writes statistics"),
    RuleSpec("batch norm forgets", "a batch norm's momentum keeps the last batch's statistics alone"),
    RuleSpec("gradients not cleared", "gradients add up over steps"),
    RuleSpec("gradients cleared before the step", "gradients are gone when the optimizer steps"),
    RuleSpec("optimizer never steps", "gradients come and are cleared, and the optimizer has not stepped once"),
    RuleSpec("gradients of another loss", "an optimizer's gradients hold those of a loss from before another optimizer's step"),
    RuleSpec("gradients cleared between micro-batches", "of several backwards before a step only the last one's gradients are used"),
    RuleSpec("loss does not reach the model", "backward gives the model's parameters no gradient"),
    RuleSpec("wrong input of a loss", "a loss that wants logits gets probabilities, or one of log-probabilities gets others"),
    RuleSpec("target carries a gradient", "the target of a loss has a gradient into the weights that make the prediction"),
    RuleSpec("advantage carries a gradient", "the factor of an action's log-probability has a gradient"),
    RuleSpec("loss twice", "backward is called on what contains a loss of which it was called before in the step"),
    RuleSpec("loss over all pairs", "tensors (N, 1) and (N,), such as predictions and targets, become (N, N)"),
    RuleSpec("unequal micro-batches", "means over different numbers of labels count the same in one step"),
    RuleSpec("loss scaled by ranks", "a mean over labels is multiplied or divided by the number of ranks, and DDP averages"),
    RuleSpec("no label counts", "a mask or ignore_index leaves no label of a batch"),
    RuleSpec("labels are the inputs", "the labels of a loss are the model's input ids, place by place"),
    RuleSpec("labels shifted twice", "the labels of a loss are the model's input ids two places further on"),
    RuleSpec("mask is inverted", "the argument attention_mask leaves the padding, and hides all other tokens"),
    RuleSpec("ends are no labels", "the token that ends sequences is hidden from the loss as padding is"),
    RuleSpec("next token is seen", "results at a place change with the next token, which is the label there"),
    RuleSpec("samples mix", "the results of a sample change with the other samples of its batch, or with its place there"),
    RuleSpec("mask without effect", "results change by what a mask of the model's call hides"),
    RuleSpec("padding is seen", "results change by what stands in the padding of an embedding"),
    RuleSpec("padding in the loss", "more labels count than the mask that the model is given leaves"),
    RuleSpec("softmax over the batch", "a softmax runs over the first dimension"),
    RuleSpec("normalized over one number", "a softmax, a norm, or a division by the sum, over a dimension of size 1"),
    RuleSpec("layers outside the model", "layers or parameters that the model does not know of get gradients, and no optimizer has them"),
    RuleSpec("nothing is loaded", "the keys of what load_state_dict is given are not the module's"),
    RuleSpec("state not loaded", "a run goes on from a checkpoint, of ``run`` or of its own folder, without all of its state", {"run": ""}),
    RuleSpec("own tensors loaded", "load_state_dict is given the module's own tensors"),
    RuleSpec("model without optimizer", "no optimizer has any parameter of a model, while others in the same loss are trained"),
    RuleSpec("setting without effect", "an attribute is set that nothing reads, such as a module's requires_grad or an optimizer's lr"),
    RuleSpec("clipped before unscaling", "gradients are clipped while they are scaled"),
    RuleSpec("clipped after the step", "gradients are clipped when the optimizer has stepped"),
    RuleSpec("clipped with each backward", "gradients are clipped several times as they add up for one step"),
    RuleSpec("nothing is clipped", "gradients are to be clipped, and none is given"),
    RuleSpec("clipped to 0", "gradients are clipped to 0 or below"),
    RuleSpec("clipped in part", "an optimizer gets gradients that are not clipped, besides those that are"),
    RuleSpec("gradients change after clipping", "gradients are written again between clipping and the optimizer's step"),
    RuleSpec("step without unscaling", "an optimizer steps with gradients that are still scaled"),
    RuleSpec("loss not scaled", "backward runs on a loss that the GradScaler in use has not scaled"),
    RuleSpec("scheduler order", "a scheduler steps more than once a step, or for an optimizer that does not step"),
    RuleSpec("scheduler never steps", "a scheduler was made and is never stepped"),
    RuleSpec("schedule past its end", "a schedule has stepped beyond its length: its rate rises again, or stays at its end"),
    RuleSpec("schedule far from its end", "a schedule made for as many steps as the optimizer makes is stepped once an epoch"),
    RuleSpec("plateau of the wrong sign", "ReduceLROnPlateau lowers the rate while its metric only ever becomes worse in its eyes"),
    RuleSpec("constant loss", "the loss is bit for bit the same for many steps"),
    RuleSpec("parameter in two optimizers", "two optimizers step with one parameter after one backward"),
    RuleSpec("norms decay", "some biases and norms are without weight decay, and others are not"),
    RuleSpec("group without parameters", "an optimizer has an empty group, and no optimizer has some parameters, or biases decay"),
    RuleSpec("optimizer state lost", "an optimizer begins anew at each step"),
    RuleSpec("recomputation differs", "what activation checkpointing computes again in backward is not what the forward gave"),
    # ranks, data and precision
    RuleSpec("replicas differ", "weights or buffers differ between ranks that should have the same"),
    RuleSpec("same data on ranks", "ranks see the same batch"),
    RuleSpec("settings differ on ranks", "ranks that train one model have other settings, versions, code or modes"),
    RuleSpec("same random numbers on ranks", "the draws of each step (dropout, noise) are the same on all ranks"),
    RuleSpec("gradients reduced twice", "an all_reduce sums up what another has made the same on all ranks"),
    RuleSpec("gather without gradient", "a loss is made of what all_gather gave of a rank's own tensors that carry a gradient"),
    RuleSpec("same batch again", "a batch comes again and again", {"steps": 16}),
    RuleSpec("epochs in the same order", "batches come in the order of the epoch before"),
    RuleSpec("samples are never drawn", "a WeightedRandomSampler has fewer weights than its data has samples"),
    RuleSpec("updates lost", "updates are below half an ulp of bfloat16 or float16 weights", {"share": 0.5, "steps": 3}),
    RuleSpec("equal layers", "layers have the same weights, and move together"),
    RuleSpec("equal units", "all units of a layer have the same weights, and move together"),
    RuleSpec("dead units", "units that are zero for every element of many batches", {"share": 0.5, "steps": 10}),
)

RULES: Mapping[str, RuleSpec] = {spec.name: spec for spec in _SPECS}
