"""Processing groups: CPUs, GPUs, NICs and huge pages that must sit together, placed jointly (pure).

A pod asks in one annotation for groups; all of them are placed on one node in one decision. The
search is complete within its budget: an answer "no" is proven, and a search that was cut off says
so. docs/groups.md describes request, rules and answer.
"""
