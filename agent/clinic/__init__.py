"""Finding what is slow, sick or hangs. The rest of the agent asks agent.clinic.interface, and nothing else here."""
