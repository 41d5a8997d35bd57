"""The canonical form of a section's parts: the values of each key. Errors quote a field's description as the expected value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from numscope.config.features import FeatureSpec
from numscope.config.matching import compiled
from numscope.config.plan import StatRequest
from numscope.config.wording import listed, one_of, shown
from numscope.records.layer import GEMMS
from numscope.records.observation import PREFIX, SEEN_IN_CALLS, STATES, TENSORS
from numscope.summary.extras import MAX_BLOCK_SIZE
from numscope.summary.operand_casts import ON_PAPER
from numscope.summary.operand_casts import TENSORS as OPERANDS

FP8_RECIPES = ("fp8_delayed_scaling", *ON_PAPER)
QUANT_FORMATS = ("FP8E4M3", "FP8E5M2", "MXFP8E4M3", "MXFP8E5M2")
CHOICES = ("layer_name_regex_pattern", "layer_names", "layer_numbers", "layer_types")
MERGES = ("layer", "type", "all")
_MAX_NUMBER = 1_000_000  # layers; a range is written out
_BOTH_ORIENTATIONS = ("activation", "weight")  # tensors that a step multiplies by as they are and transposed


@dataclass(frozen=True)
class Words:
    """The validators' context besides the value."""

    statistics: Mapping[str, tuple[str, ...] | None]  # canonical names, each with the tensors it can be computed of (None: any)
    aliases: Mapping[str, str] = field(default_factory=dict)  # a dialect's other words for statistics


class SchemaPart(BaseModel):
    """Any part: unknown keys are errors, and nothing is converted (``"10"`` is not a number)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _wrong(*found: tuple[str, str]) -> PydanticCustomError:
    """Errors, each with the place below the field or model, and its text."""
    return PydanticCustomError("found", "found", {"found": found})


def explain(error: ValidationError, part: type[BaseModel]) -> Iterator[tuple[tuple[Any, ...], str, str, bool]]:
    """An error's findings: (canonical key path, place below it, text, whether a key is missing)."""
    for one in error.errors(include_url=False):
        place = one["loc"]
        expected = getattr(part.model_fields.get(str(place[0])) if place else None, "description", None)
        if one["type"] == "found":
            yield from ((place, below, text, False) for below, text in one["ctx"]["found"])
        elif one["type"] == "missing":
            yield place, "", f"missing, expected {expected}.", True
        elif one["type"] == "extra_forbidden":
            yield place, "", "", False  # the caller knows the keys' names in the user's dialect
        else:
            yield place, "", f"got {shown(one['input'])}, expected {expected}.", False


# ------------------------------------------------------------------------------------------------------------ values


def _list(value: object, rule: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _wrong(("", f"got {shown(value)}, expected {rule}."))
    return value


def _each(rule: str, mistake: Callable[[object], str | None]) -> Callable[[object], tuple[Any, ...]]:
    """A validator of lists; ``mistake`` returns the error of an item, None without one."""

    def check(value: object) -> tuple[Any, ...]:
        items = _list(value, rule)
        wrong = [(f"[{index}]", text) for index, item in enumerate(items) if (text := mistake(item)) is not None]
        if wrong:
            raise _wrong(*wrong)
        return tuple(dict.fromkeys(items))

    return check


def _texts(rule: str) -> Callable[[object], tuple[Any, ...]]:
    return _each(rule, lambda item: None if isinstance(item, str) and item else f"got {shown(item)}, expected {rule}.")


def _words(choices: tuple[str, ...], rule: str, pattern: str = "(?!)") -> PlainValidator:
    """A validator of lists of words; a word alone is a list of one. ``pattern``: of further words."""

    def known(item: object) -> bool:
        return item in choices or (isinstance(item, str) and re.fullmatch(pattern, item) is not None)

    check = _each(rule, lambda item: None if known(item) else one_of(item, choices))
    return PlainValidator(lambda value: check([value] if known(value) else value))


def _regex(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(("", f"got {shown(value)}, expected a regex that is searched for in layers' names."))
    try:
        compiled(value)
    except re.error as error:
        raise _wrong(("", f"{shown(value)} is not a regular expression: {error}.")) from None
    return value


def _numbers(value: object) -> frozenset[int] | None:
    """``[1, 3-5]``, ``4``, ``1-12``: those numbers; ``all``: None."""
    rule = "numbers, ranges such as 1-12, or only all"
    items = _list(value, rule) if isinstance(value, list) else [value]
    if [str(item).lower() for item in items] == ["all"]:
        return None
    found: set[int] = set()
    num_written = 0
    wrong: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        below = f"[{index}]" if isinstance(value, list) else ""
        span = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", str(item)) if isinstance(item, int | str) else None
        if span is None or isinstance(item, bool):
            wrong.append((below, f"got {shown(item)}, expected {rule}."))
            continue
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            wrong.append((below, f"got {shown(item)}, expected the smaller number first: {last}-{first}."))
        elif last > _MAX_NUMBER:
            wrong.append((below, f"got {shown(item)}, expected layer numbers of at most {_MAX_NUMBER}."))
        elif (num_written := num_written + last - first + 1) <= _MAX_NUMBER:
            found.update(range(first, last + 1))
    if num_written > _MAX_NUMBER:
        wrong.append(("", f"got more than {_MAX_NUMBER} numbers with all ranges written out, expected {rule}."))
    if wrong:
        raise _wrong(*wrong)
    return frozenset(found)


def _types(value: object) -> tuple[str, ...] | None:
    if value in ("all", ["all"]):
        return None
    found = _texts("a list of parts of layers' names or class names, or all")(value)
    if "all" in found:
        raise _wrong(("", f"got {shown(value)}, expected only all, or other words without it."))
    return found


class Layers(SchemaPart):
    """The layers that a section selects."""

    layer_name_regex_pattern: Annotated[Any, PlainValidator(_regex)] = None
    layer_names: Annotated[Any, PlainValidator(_texts("a list of layers' whole names"))] = None
    layer_numbers: Annotated[Any, PlainValidator(_numbers)] = None
    layer_types: Annotated[Any, PlainValidator(_types)] = None
    containers: bool = Field(False, description="true (also modules without their own parameters) or false")

    @model_validator(mode="after")
    def _chooses(self) -> Layers:
        if not self.model_fields_set & {*CHOICES}:
            raise _wrong(("", f"selects nothing, expected at least one of {', '.join(CHOICES)}."))
        return self


def clash(keys: Collection[str]) -> tuple[str, ...]:
    """Keys of ``layers`` that cannot be combined: numbers and types can, a pattern or names can't."""
    given = tuple(key for key in CHOICES if key in keys)
    return () if {*given} <= {"layer_numbers", "layer_types"} or len(given) == 1 else given


# -------------------------------------------------------------------------------------------------------- statistics


def _asked(value: object, rule: str, read: Callable[[Any], StatRequest]) -> tuple[StatRequest, ...]:
    """The statistics that a list asks for, each once; ``read`` reads one item."""
    asked: dict[StatRequest, None] = {}
    wrong: list[tuple[str, str]] = []
    for index, item in enumerate(_list(value, rule)):
        try:
            asked[read(item)] = None
        except PydanticCustomError as error:
            wrong += [(f"[{index}]{below}", text) for below, text in (error.context or {})["found"]]
    labels = Counter(one.label for one in asked)
    wrong += [
        ("", f'asks for "{label}" twice with different options, which logs could not tell apart.')
        for label, count in labels.items()
        if count > 1
    ]
    if wrong:
        raise _wrong(*wrong)
    return tuple(asked)


def _stats(value: object, info: ValidationInfo) -> tuple[StatRequest, ...]:
    words = cast(Words, info.context)

    def read(item: Any) -> StatRequest:
        name, options = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, None)
        if not isinstance(name, str):
            raise _wrong(("", f"got {shown(item)}, expected a statistic's name, or one with its options: {{name: {{option: value}}}}."))
        canonical = words.aliases.get(name, name)
        if canonical not in words.statistics:
            raise _wrong(("", one_of(name, words.statistics)))
        part = OPTIONS.get(canonical)
        if part is None:
            if options is not None:
                raise _wrong((f".{name}", f"got options, expected none: only {', '.join(OPTIONS)} has any."))
            return StatRequest(name, canonical)
        try:
            given = part.model_validate({} if options is None else options).model_dump(exclude_none=True)
        except ValidationError as error:
            raise _wrong(
                *(
                    (".".join(("", name, *map(str, place))), text or f"is unknown, expected {listed(place[0], part.model_fields)}")
                    for place, _, text, _ in explain(error, part)
                )
            ) from None
        given_words = [key if v is True else f"{key}_{v}" for key, v in given.items() if v is not False]
        return StatRequest(name if options is None else "_".join([name, *given_words]), canonical, tuple(given.items()))

    return _asked(value, "a list of statistics such as [min, max, mean]", read)


def _fp8_stats(value: object, info: ValidationInfo) -> tuple[StatRequest, ...]:
    """``underflows``, ``mxfp8_mse``, ``fp8_current_scaling_underflows%_columnwise``: recipe and orientation are options."""
    words = cast(Words, info.context)

    def read(item: Any) -> StatRequest:
        rest, options = item if isinstance(item, str) else "", []
        if recipe := next((recipe for recipe in FP8_RECIPES if rest.startswith(f"{recipe}_")), None):
            rest = rest.removeprefix(f"{recipe}_")
            options.append(("recipe", recipe))
        if rest.endswith("_columnwise"):
            rest = rest.removesuffix("_columnwise")
            options.append(("orientation", "columnwise"))
        canonical = words.aliases.get(rest, rest)
        if canonical not in words.statistics:
            raise _wrong(("", one_of(item, words.statistics, words.aliases)))
        return StatRequest(item, canonical, tuple(options))

    return _asked(value, "a list of statistics such as [underflows_pct, overflows_pct]", read)


class Blockwise(SchemaPart):
    """Options of ``max_blockwise_dynamic_range``."""

    block_size: int = Field(32, ge=1, le=MAX_BLOCK_SIZE, description=f"a whole number of elements from 1 to {MAX_BLOCK_SIZE}")
    dims: Literal[1, 2] = Field(1, description="1 (block_size elements in a row) or 2 (block_size × block_size)")
    max_over_orientations: bool | None = Field(None, description="true (the larger of the tensor's and its transpose's) or false")

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise _wrong(("", f"got {shown(value)}, expected its options: {', '.join(cls.model_fields)}."))
        return value


OPTIONS: dict[str, type[SchemaPart]] = {"max_blockwise_dynamic_range": Blockwise}


def for_tensor(asked: StatRequest, tensor: str) -> StatRequest:
    """The statistic with the option filled in that depends on the tensor: whether both orientations count."""
    if asked.statistic != "max_blockwise_dynamic_range" or any(name == "max_over_orientations" for name, _ in asked.options):
        return asked
    return StatRequest(asked.label, asked.statistic, (*asked.options, ("max_over_orientations", tensor in _BOTH_ORIENTATIONS)))


# --------------------------------------------------------------------------------------------------------- features


class Feature(SchemaPart):
    enabled: bool = Field(description="true or false")


class Scheduled(Feature):
    """A feature that acts at some steps."""

    freq: int = Field(1, ge=1, description="a whole number of steps, 1 or more")
    start_step: int | None = Field(None, ge=0, description="a step, 0 or more")
    end_step: int | None = Field(None, ge=-1, description="a step, 0 or more, or -1 for no end")
    start_end_list: list[list[int]] | None = Field(None, description="a list of [first, last] steps such as [[0, 20], [80, -1]]")

    @field_validator("end_step")
    @classmethod
    def _ends_after_start(cls, end: int | None, info: ValidationInfo) -> int | None:
        start = info.data.get("start_step") or 0
        if end is not None and 0 <= end < start:
            raise _wrong(("", f"got {end}, expected start_step ({start}) or later, or -1 for no end."))
        return end

    @field_validator("start_end_list")
    @classmethod
    def _in_order(cls, pairs: list[list[int]] | None, info: ValidationInfo) -> list[list[int]] | None:
        if pairs is None:
            return None
        if beside := [key for key in ("start_step", "end_step") if info.data.get(key) is not None]:
            raise _wrong(("", f"got {' and '.join(beside)} as well, expected one of them: the list has its own first and last steps."))
        _list(pairs, "[first, last] steps such as [[0, 20], [80, -1]]")
        wrong: list[tuple[str, str]] = []
        before: int | None = -1
        for index, pair in enumerate(pairs):
            below = f"[{index}]"
            if len(pair) != 2 or pair[0] < 0 or pair[1] < -1:
                wrong.append((below, f"got {shown(pair)}, expected [first, last]: steps from 0, where the last can be -1 for no end."))
                break
            first, last = pair
            if 0 <= last < first:
                wrong.append((below, f"got {shown(pair)}, expected the first step before the last."))
            if before is None:
                wrong.append((below, f"got {shown(pair)} after a pair that has no end, expected none."))
            elif first <= before:
                wrong.append((below, f"got {shown(pair)}, expected to begin after step {before}: pairs in order, without overlap."))
            before = None if last == -1 else last
        if wrong:
            raise _wrong(*wrong)
        return pairs


def _quant_format(value: object) -> object:
    if value not in QUANT_FORMATS:
        raise _wrong(("", one_of(value, QUANT_FORMATS)))
    return value


_TENSOR_RULE = f"a list of tensors: {', '.join(TENSORS)}"
_OPERAND_RULE = f"a list of tensors: {', '.join(OPERANDS)}"
_GEMM_RULE = f"a list of GEMMs: {', '.join(GEMMS)}"
_WATCHED = (*TENSORS, *STATES, *SEEN_IN_CALLS)
_WATCHED_RULE = f"a list of tensors: {', '.join(_WATCHED)}, or {PREFIX}<name> for another state of the optimizer"
_Watched = Annotated[Any, _words(_WATCHED, _WATCHED_RULE, re.escape(PREFIX) + r"\w+"), Field(description=_WATCHED_RULE)]
_Tensors = Annotated[Any, _words(TENSORS, _TENSOR_RULE), Field(description=_TENSOR_RULE)]
_Operands = Annotated[Any, _words(OPERANDS, _OPERAND_RULE), Field(description=_OPERAND_RULE)]
_Gemms = Annotated[Any, _words(GEMMS, _GEMM_RULE), Field(description=_GEMM_RULE)]


_REDUCE_RULE = 'true (merged over ranks), false (each rank its own) or "when read" (its own, for readers to merge)'


def _reduce(value: object) -> bool | str:
    if isinstance(value, bool) or value == "when read":
        return value
    raise _wrong(("", f"got {shown(value)}, expected {_REDUCE_RULE}."))


class Statistics(Scheduled):
    """Statistics of tensors: ``statistics``."""

    stats: Annotated[Any, PlainValidator(_stats)] = Field(description="a list of statistics such as [min, max, mean]")
    tensors: _Watched
    reduce: Annotated[Any, PlainValidator(_reduce)] = Field(True, description=_REDUCE_RULE)
    merge: str | None = Field(None, description="layer, type, all, or a regex with a group")
    evaluation: bool = Field(False, description="true or false")

    @field_validator("tensors")
    @classmethod
    def _have_the_statistics(cls, tensors: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        words = cast(Words, info.context)
        for asked in info.data.get("stats", ()):
            of = words.statistics[asked.statistic]
            if of is not None and (others := [tensor for tensor in tensors if tensor not in of]):
                rule = f'only {" and ".join(of)} for "{asked.label}"'
                again = f"Ask for that statistic separately, with tensors: [{', '.join(of)}]."
                raise _wrong(("", f"got {', '.join(others)}, expected {rule}. {again}"))
        return tensors

    @field_validator("merge")
    @classmethod
    def _groups(cls, value: str | None) -> str | None:
        if value is None or value in MERGES:
            return value
        if not compiled(_regex(value)).num_groups:
            rule = 'layer, type, all, or a regex with a group, whose text names the merged sites, such as "layers\\.(\\d+)"'
            raise _wrong(("", f"got {shown(value)}, expected {rule}."))
        return value


class Fp8Statistics(Scheduled):
    """Statistics of tensors as their fp8 casts see them: ``collect_fp8_tensor_stats``."""

    stats: Annotated[Any, PlainValidator(_fp8_stats)] = Field(description="a list of statistics such as [underflows_pct, overflows_pct]")
    tensors: _Operands


class DisableGemm(Scheduled):
    """GEMMs that run in high precision: ``disable_fp8_gemm``."""

    gemms: _Gemms = None


class DisableLayer(Scheduled):
    """Layers that run in high precision: ``disable_fp8_layer``."""


class PerTensorScaling(Scheduled):
    """GEMMs whose operands are scaled by their current amax: ``per_tensor_scaling``."""

    gemms: _Gemms = None
    tensors: _Operands = None
    margin: int = Field(0, ge=-64, le=64, description="a whole number from -64 to 64, a power of two that the amax is multiplied by")


class FakeQuant(Scheduled):
    """Operands cast to a format and back: ``fake_quant``."""

    quant_format: Annotated[Any, PlainValidator(_quant_format)] = Field(description=f"one of {', '.join(QUANT_FORMATS)}")
    gemms: _Gemms = None
    tensors: _Tensors


class DumpTensors(Scheduled):
    """Whole tensors written to files: ``dump_tensors``."""

    tensors: _Tensors
    high_precision_tensor: bool = Field(False, description="true or false")
    quantized_tensor: bool = Field(False, description="true or false")

    @model_validator(mode="after")
    def _dumps_something(self) -> DumpTensors:
        if not self.high_precision_tensor and not self.quantized_tensor:
            raise _wrong(("", "dumps nothing, expected high_precision_tensor: true, quantized_tensor: true, or both."))
        return self


class Plugged(Scheduled):
    """A plug-in's feature; its settings are checked against those named when it was added."""

    model_config = ConfigDict(extra="allow")
    tensors: _Tensors = None


def part_of(spec: FeatureSpec) -> type[Feature]:
    """The class that checks a feature's settings."""
    part: type[Feature] = globals()[spec.part]
    return part
