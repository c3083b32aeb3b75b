"""Readers of what may be sick: ranks that do not answer, NCCL, stacks."""
