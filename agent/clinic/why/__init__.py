"""Why a run stands still: what each pod saw of its ranks, and what follows from all of it."""
