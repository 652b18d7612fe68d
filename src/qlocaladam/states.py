"""What the optimizer keeps for one parameter: made, read, checked when it is loaded, and exchanged with torch's Adam.

A quantized moment is two entries, `<moment>_codes` and `<moment>_ranges`; one that is not is one entry, `<moment>`, in
FP32 (float64 for a parameter of that type). `step` counts the updates.

The states of a sharded parameter (a DTensor, as FSDP2 makes them) are DTensors too. Blocks do not cross from one shard
to another, so every shard has codes and ranges of its own, as long as those of the largest shard. How the parameter was
cut is part of the entries' names: blocks that were cut in another way cannot be read, and so they are not found.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qlocaladam.codecs import Codec, Encoded

MOMENTS = ("momentum", "variance")
ADAM_NAMES = {"momentum": "exp_avg", "variance": "exp_avg_sq"}

Codecs = tuple[Codec | None, Codec | None]
State = dict[str, Any]


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor. None can exist before somebody has imported their module, which is slow to import."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_plain(tensor: Tensor) -> bool:
    """Whether torch itself handles operations on it."""
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def is_fake(tensor: Tensor) -> bool:
    return type(tensor).__module__.startswith("torch._subclasses.")


def keeps_its_own(tensor: Tensor) -> bool:
    """Whether it is a subclass that keeps its numbers elsewhere, as quantized weights do: views may be copies."""
    return not (is_plain(tensor) or is_sharded(tensor) or is_fake(tensor))


def has_memory(tensor: Tensor, device: str = "cpu") -> bool:
    """Whether all of its values are in memory on such a device, as they are."""
    if tensor.device.type != device or not is_plain(tensor) or tensor.layout != torch.strided or tensor.is_neg():
        return False
    if tensor._is_zerotensor() or torch._is_functional_tensor(tensor):
        return False
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + reach + 1) * tensor.element_size()
    return not tensor.numel() or (end <= tensor.untyped_storage().nbytes() and tensor.data_ptr() != 0)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor; any other tensor itself."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def local_grad(param: Tensor, grad: Tensor) -> Tensor:
    """This process's part of a gradient, cut like its parameter."""
    if is_sharded(param) and is_sharded(grad) and grad.placements != param.placements:  # type: ignore[attr-defined]
        grad = grad.redistribute(placements=param.placements)  # type: ignore[attr-defined]
    return local(grad)


def refuse_unsummed(param: Tensor) -> None:
    if is_sharded(param) and any(place.is_partial() for place in param.placements):  # type: ignore[attr-defined]
        raise ValueError(
            f"QLocalAdam needs parameters whose shards are whole, got one with placements {param.placements}"  # type: ignore[attr-defined]
        )


def _entries(moment: str, param: Tensor) -> tuple[str, str]:
    """The names of a quantized moment's codes and ranges."""
    cut = ""
    if is_sharded(param):
        places = zip(param.placements, param.device_mesh.shape, strict=True)  # type: ignore[attr-defined]
        cut = "".join(f"_cut_in_{processes}_at_dim_{place.dim}" for place, processes in places if place.is_shard())
    return f"{moment}_codes{cut}", f"{moment}_ranges{cut}"


def _largest_shard(param: Tensor) -> int:
    sizes = list(param.shape)
    for place, processes in zip(param.placements, param.device_mesh.shape, strict=True):  # type: ignore[attr-defined]
        if place.is_shard():
            sizes[place.dim] = -(-sizes[place.dim] // processes)
    return torch.Size(sizes).numel()


def _spread(part: Tensor, param: Tensor) -> Tensor:
    """The DTensor of which every process that has a shard of the parameter holds an equally long part."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placements = [Shard(0) if place.is_shard() else Replicate() for place in param.placements]  # type: ignore[attr-defined]
    return DTensor.from_local(part, param.device_mesh, placements, run_check=False)  # type: ignore[attr-defined]


def _full_precision(param: Tensor) -> torch.dtype:
    return torch.float64 if param.dtype == torch.float64 else torch.float32


def new_state(param: Tensor, codecs: Codecs) -> State:
    """The state before the first step: zeros."""
    state: State = {"step": 0}
    for moment, codec in zip(MOMENTS, codecs, strict=True):
        if codec is None:
            like = torch.zeros_like(param, dtype=_full_precision(param), memory_format=torch.contiguous_format)
            state[moment] = like.detach()
            continue
        parts = codec.zeros(_largest_shard(param) if is_sharded(param) else param.numel(), param.device)
        for entry, part in zip(_entries(moment, param), parts, strict=True):
            state[entry] = _spread(part, param) if is_sharded(param) else part
    return state


def stored(state: State, moment: str, codec: Codec | None, param: Tensor) -> Tensor | Encoded:
    """A moment as it is stored for this process's part of the parameter."""
    entries: tuple[str, ...] = (moment,) if codec is None else _entries(moment, param)
    if not all(isinstance(state.get(entry), Tensor) for entry in entries):
        raise RuntimeError(
            f"the state of a parameter of {_of(param)} has no {_listed(entries)}: was one of them replaced?"
        )
    own = local(param)
    if codec is None:
        whole = local(state[moment])
        _refuse_replaced(whole, _full_precision(param), tuple(own.shape), moment, param)
        return whole
    codes, ranges = (local(state[entry]) for entry in entries)
    if is_sharded(param):  # without what only a longer shard fills
        codes, ranges = codes[: codec.code_bytes(own.numel())], ranges[: codec.blocks(own.numel())]
    _refuse_replaced(codes, torch.uint8, (codec.code_bytes(own.numel()),), entries[0], param)
    _refuse_replaced(ranges, torch.float32, (codec.blocks(own.numel()), codec.range_size), entries[1], param)
    return Encoded(codes, ranges)


def step_of(state: State, param: Tensor) -> int:
    """How many updates the parameter has had."""
    if not isinstance(step := state.get("step"), int):
        raise RuntimeError(f"the state of a parameter of {_of(param)} has step={step!r}: was it replaced?")
    return step


def _of(tensor: Tensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "a single value"
    return f"{'sharded ' if is_sharded(tensor) else ''}{tensor.dtype} of {shape}"


def _refuse_replaced(tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], entry: str, param: Tensor) -> None:
    """A kernel takes a state for what its parameter and its group's settings say."""
    like = tensor.dtype == dtype and tuple(tensor.shape) == shape and is_fake(tensor) == is_fake(param)
    if not like or tensor.device != param.device:
        raise RuntimeError(
            f"the state {entry!r} of a parameter of {_of(param)} must be {dtype} of {' x '.join(map(str, shape))} on "
            f"{param.device}, got {_of(tensor)} on {tensor.device}: was one of them replaced?"
        )


def _refusal(name: object, what: str) -> ValueError:
    """Of a state that is loaded for the parameter of this name."""
    return ValueError(f"the state of parameter {name!r} {what}")


def checked(saved: State, param: Tensor, codecs: Codecs, name: object) -> State:
    """A copy of a saved state on the parameter's device. Raises ValueError for one that the parameter cannot have."""
    with torch.no_grad():
        wanted = new_state(_without_data(param), codecs)
    if missing := wanted.keys() - saved.keys():
        cut = any("_cut_in_" in key for key in (*missing, *saved))
        advice = ": quantized states cannot be sharded anew; save adam_state_dict() and load that"
        raise _refusal(name, f"has no {_listed(missing)}" + cut * advice)
    if unknown := saved.keys() - wanted.keys():
        raise _refusal(name, f"has {_listed(unknown)}, which none has here")
    placed: State = {}
    for key, value in saved.items():
        if key == "step":
            placed[key] = _whole_step(value, name)
        else:
            _refuse_unlike(value, wanted[key], key, name)
            # A copy in logical order: compiled code takes nothing else.
            placed[key] = value.detach().to(param.device, copy=True, memory_format=torch.contiguous_format)
    return placed


def _without_data(param: Tensor) -> Tensor:
    """Of the same shape, type and cut, to make states of that take no memory."""
    return param if is_sharded(param) else torch.empty_like(param, device="meta", memory_format=torch.contiguous_format)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in sorted(names, key=str))


def _whole_step(value: Any, name: object) -> int:
    readable = isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta" and not is_fake(value)
    number = value.item() if readable else value
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    if not whole or isinstance(number, bool) or not 0 <= number < 2**53:
        raise _refusal(name, f"has a step of {str(value)[:40]}, not a whole number from 0 on")
    return int(number)


def _refuse_unlike(value: Any, wanted: Tensor, key: str, name: object) -> None:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise _refusal(name, f"has {type(value).__name__} in {key!r}, not a dense tensor")
    _refuse_without_data(value, key, name)
    if _of(value) != _of(wanted) or local(value).shape != local(wanted).shape:
        raise _refusal(name, f"has {_of(value)} in {key!r}; the parameter needs {_of(wanted)}")


def _refuse_without_data(value: Tensor, key: str, name: object) -> None:
    part = local(value)
    on_cpu = part.device.type == "cpu"
    if part.device.type == "meta" or is_fake(part) or (on_cpu and not has_memory(part.resolve_neg())):
        raise _refusal(name, f"has a tensor without data in {key!r}")


def is_adam(saved: State) -> bool:
    """Whether it is the state of a parameter as torch.optim.Adam and AdamW keep it."""
    return "exp_avg" in saved


def from_adam(saved: State, param: Tensor, codecs: Codecs, name: object) -> State:
    """The state that torch.optim.Adam kept for a parameter, stored as ours."""
    if unknown := saved.keys() - {"step", *ADAM_NAMES.values()}:
        raise _refusal(name, f"has {_listed(unknown)}, which QLocalAdam cannot continue with")
    with torch.no_grad():
        wanted = new_state(param, codecs)
        moments = {}
        for moment, theirs in ADAM_NAMES.items():
            value = saved.get(theirs)
            if not isinstance(value, Tensor) or value.shape != param.shape or not value.is_floating_point():
                got = f"{value.dtype} of {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                needed = f"floating-point numbers of {tuple(param.shape)}"
                raise _refusal(name, f"has {got} in {theirs!r}; the parameter needs {needed}")
            _refuse_without_data(value, theirs, name)
            if is_sharded(value) != is_sharded(param):
                raise _refusal(name, f"must be sharded like it in {theirs!r}, or not at all")
            moments[moment] = local(value).detach().to(param.device, _full_precision(param))
        first = codecs[0]
        if first is not None and first.relative:
            root = moments["variance"].sqrt()
            moments["momentum"] = torch.where(root == 0, 0.0, moments["momentum"] / root)
        for (moment, values), codec in zip(moments.items(), codecs, strict=True):
            target = stored(wanted, moment, codec, param)
            if isinstance(target, Encoded) and codec is not None:
                for part, encoded in zip(target, replace(codec, rounding="nearest").encode(values), strict=True):
                    part.copy_(encoded)
            elif isinstance(target, Tensor):
                target.copy_(values)
    wanted["step"] = _whole_step(saved.get("step"), name)
    return wanted


def to_adam(state: State, param: Tensor, codecs: Codecs) -> State:
    """The state as torch.optim.Adam keeps it, with moments as numbers."""
    with torch.no_grad():
        moments = {}
        for moment, codec in zip(MOMENTS, codecs, strict=True):
            kept = stored(state, moment, codec, param)
            numel = local(param).numel()
            values = codec.decode(kept, numel) if codec is not None and isinstance(kept, Encoded) else kept
            assert isinstance(values, Tensor)
            moments[moment] = values.reshape(local(param).shape).clone()
        first = codecs[0]
        if first is not None and first.relative:
            moments["momentum"] *= moments["variance"].sqrt()
    exported: State = {"step": torch.tensor(float(state["step"]), dtype=torch.float32, device="cpu")}
    for moment, theirs in ADAM_NAMES.items():
        values = moments[moment]
        exported[theirs] = _like_parameter(values, param) if is_sharded(param) else values
    return exported


def _like_parameter(part: Tensor, param: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part,
        param.device_mesh,  # type: ignore[attr-defined]
        param.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )
