"""Conversion of the stand-in."""

from megatron.conversion import main

main()
