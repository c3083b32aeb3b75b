"""How the coordinator and the workers talk, and how commands of a pod ask its agent."""
