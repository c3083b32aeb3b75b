"""result.json → a page for people: one run, or several compared. Values in, text out: no effects."""
