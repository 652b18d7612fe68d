"""The optimizer memory that the paper prints, in MB, by data set, arm and block size."""

from __future__ import annotations

PUBLISHED = {
    ("cifar10", "fp32", 64): "50.35",
    ("cifar10", "q-localadam", 64): "14.95",
    ("cifar10", "naive-int8", 64): "14.95",
    ("cifar10", "momentum-only", 64): "32.65",
    ("cifar10", "variance-only", 64): "32.65",
    ("cifar10", "q-localadam", 32): "17.31",
    ("cifar10", "q-localadam", 128): "13.77",
    ("cifar100", "fp32", 64): "89.82",
    ("cifar100", "q-localadam", 64): "26.67",
    ("cifar100", "naive-int8", 64): "26.67",
    ("cifar100", "momentum-only", 64): "58.24",
    ("cifar100", "variance-only", 64): "58.24",
    ("cifar100", "q-localadam", 32): "30.88",
    ("cifar100", "q-localadam", 128): "24.56",
}
