"""All rules for what the chart makes: those for objects, for what they refer to, and for pods."""

from tests.chart import pod_rules, reference_rules, rules, schemas

MODULES = (rules, reference_rules, pod_rules, schemas)
RULES = rules.RULES
"""To which each module has added its own."""
