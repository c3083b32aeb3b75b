"""Preprocessing of the stand-in."""

from megatron.preprocessing import main

main()
