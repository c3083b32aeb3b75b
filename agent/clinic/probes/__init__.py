"""What looks at devices for the decisions of doctor/."""
