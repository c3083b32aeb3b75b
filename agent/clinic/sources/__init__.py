"""What looks at the processes of a run for `why`, and reads what they answer."""
