"""Other people's quantized Adams as arms of a run, and the bytes that any optimizer holds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from qlocaladam.extras import how_to_install
from qlocaladam.federated.settings import PEERS


@contextmanager
def quiet() -> Iterator[None]:
    """Peers warn about parts of theirs that are missing here and that no Adam needs."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def make_peer(arm: str, params: Iterable[Tensor], options: dict[str, Any]) -> Optimizer:
    """The optimizer of a peer's arm. Raises ValueError if its package is missing or does not take the options."""
    module, name = PEERS[arm]
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise ValueError(f"arm {arm!r}: {how_to_install(package)}")
    with quiet():
        kind: type[Optimizer] = getattr(import_module(module), name)
    try:
        optimizer = kind(params, **options)
    except TypeError as error:
        raise ValueError(f"optimizer has an option that {name} of {package} does not have: {error}") from None
    # torchao compiles its step for every shape of tensor, which takes minutes; the operations are the same without.
    optimizer.step = torch.compiler.set_stance("force_eager")(optimizer.step)  # type: ignore[method-assign]
    return optimizer


def held_bytes(optimizer: Optimizer) -> int:
    """Bytes of all tensors in an optimizer's state. A storage that several tensors share counts once."""
    storages: dict[int, int] = {}

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                add(item)
        elif hasattr(value, "__tensor_flatten__"):  # a tensor made of tensors, as torchao's
            for name in value.__tensor_flatten__()[0]:
                add(getattr(value, name))
        elif isinstance(value, Tensor):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()

    for state in optimizer.state.values():
        add(state)
    return sum(storages.values())
