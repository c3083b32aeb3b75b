"""What can be run: one module per workload says what to launch and how to judge its end."""
