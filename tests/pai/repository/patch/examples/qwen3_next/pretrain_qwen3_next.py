"""Training of the stand-in."""

from megatron.training import main

main()
