"""Mutants of a method: wrong versions that its exact claims must reject.

`find` puts parts of the base back, `rules` change one expression of a function, `settings` change one number of a
recipe, `edits` installs a changed function for a while, `trial` runs the exact claims of a method against its mutants,
`every` those of all methods in parallel.
"""
