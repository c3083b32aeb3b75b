"""Runs: booked and led by the coordinator, each pod's part in them."""
