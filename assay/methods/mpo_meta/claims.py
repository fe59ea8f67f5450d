from assay.methods.mpo_meta.parts import LOOSE
from dataclasses import replace
CLOSED = tuple(replace(one, limit=min(one.limit, 4) if one.name == "content" else 1) for one in LOOSE)
