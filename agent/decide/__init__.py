"""Decisions: pure functions over values. Nothing in here touches the machine."""
