"""What looks at ranks, NCCL, processes and devices for the decisions of why/ and doctor/."""
