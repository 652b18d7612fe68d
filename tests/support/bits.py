"""What has to be equal bit for bit, of nested containers of tensors and numbers."""

from __future__ import annotations

from typing import Any

import torch


def content(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: content(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [content(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return value
