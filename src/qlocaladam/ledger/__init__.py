"""The ledger of claims: what the paper prints beside what was computed, with a verdict."""
