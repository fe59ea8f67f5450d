"""Mutants of a method: wrong versions that its exact claims must reject.

`swaps` puts parts of the base back, `rules` change one expression of a function, `edits` installs a changed function
for a while, `trial` runs the exact claims of a method against its mutants.
"""
