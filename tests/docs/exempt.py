"""What of the documentation is not checked here, each with the reason or with the test that runs it."""

EXEMPT = {
    "--device cuda": "needs a GPU",
    "vllm serve": "needs vLLM, which was tried by hand (docs/scale.md)",
    "import hashlib\nfrom dataclasses import dataclass": "needs vLLM, which was tried by hand (docs/scale.md)",
    "from trl import GRPOConfig, GRPOTrainer": "needs a model; tests/docs/test_coming_from.py checks its arguments",
    "from stable_baselines3 import PPO": "tests/docs/test_coming_from.py runs it, with fewer steps",
    "verl.trainer.main_ppo": "needs verl, which no extra installs, and a GPU",
    "from openai import OpenAI": "an agent program: tests/tasks/adapters/agent_program.py is one, without the package",
    "assay --version": "ends the process; tests/test_package.py runs the command",
}
"""A part of a command, or the first words of a block of Python, and why it is left out."""

ELSEWHERE = {
    "README.md": {"python": "tests/test_examples.py"},
    "docs/environments.md": {"python": "tests/test_examples.py"},
    "docs/language.md": {"python": "tests/test_docs.py", "shell": "tests/test_docs.py"},
    "docs/python.md": {"python": "tests/docs/test_python_stories.py"},
    "docs/own.md": {"python": "tests/users/test_own_docs.py", "shell": "tests/users/test_own_docs.py"},
}
"""Pages whose blocks of Python or of a shell another test runs in full, and that test."""
