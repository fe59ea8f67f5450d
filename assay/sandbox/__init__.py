"""Runs code that a model has written, in boxes: `sandbox_of("bubblewrap").run(code, inputs, limits)`.

Needs no torch and no other part of Assay. `inside` and `looking_out` are programs that run in a box.
"""

from assay.sandbox.choice import Sandbox, sandbox_of
from assay.sandbox.values import Assertions, Calls, Completed, Job, Limits, ProgramFault, Result, SandboxFault, Stdin

__all__ = [
    "Assertions",
    "Calls",
    "Completed",
    "Job",
    "Limits",
    "ProgramFault",
    "Result",
    "Sandbox",
    "SandboxFault",
    "Stdin",
    "sandbox_of",
]
