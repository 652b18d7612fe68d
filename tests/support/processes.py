"""Processes that tests start as copies of one that has imported what most of them need, which takes seconds."""

from __future__ import annotations

import multiprocessing

# Whoever starts the first one decides what is imported before it is copied: so there is one list for all tests.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("pytest", "torch.distributed.checkpoint", "torch.distributed.fsdp", "qlocaladam"),
        *("snakemake.cli", "qlocaladam.ledger.claims", "qlocaladam.results.layout"),
    ]
)
