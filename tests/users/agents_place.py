"""Files of agents that cannot be used: tools, sessions, programs with tests, shells, chats, worlds."""

import json
from pathlib import Path

CODE = '''
import sys
VALUE = 3

def untyped(query): return query
def typed(query: str) -> str:
    """Finds.
    """
    return query
def no_doc(query: str) -> str: return query
def star(*queries: str) -> str: return ""
def named_only(**queries: str) -> str: return ""
def odd(query: "nothing.at.all") -> str:
    """Finds."""
    return ""
def unions(query: int | str | None) -> str:
    """Finds."""
    return ""
def keyword(query: object) -> str:
    """Finds."""
    return ""
class Empty: pass
class Raises:
    def __init__(self): raise ValueError("no")
    def find(self, query: str) -> str:
        """Finds."""
        return query
class Needs:
    def __init__(self, size): self.size = size
    def find(self, query: str) -> str:
        """Finds."""
        return query
class NoReward:
    def reset(self, **row): return "begin"
class Guess:
    def find(self, query: str) -> str:
        """Finds."""
        return query
    def reward(self): return 1.0
lambdas = lambda query: query
class Session:
    is_repeatable = True
    def item(self, ordinal, split): raise ValueError("no item")
    def open(self, item, seed): return self
class NoOpen:
    is_repeatable = True
    def item(self, ordinal, split): return None
'''

ROWS = {
    "tests_empty": [{"prompt": "p", "tests": []}],
    "tests_text": [{"prompt": "p", "tests": "assert f()"}],
    "tests_numbers": [{"prompt": "p", "tests": [1]}],
    "tests_mixed": [{"prompt": "p", "tests": ["assert f()", {"stdin": "1", "stdout": "2"}]}],
    "tests_null": [{"prompt": "p", "tests": None}],
    "tests_half": [{"prompt": "p", "tests": [{"stdin": "1"}]}],
    "tests_output": [{"prompt": "p", "tests": [{"stdin": "1", "stdout": 2}]}],
    "tests_second": [{"prompt": "p", "tests": ["assert f()"]}, {"prompt": "q", "tests": []}],
    "tests_no_prompt": [{"tests": ["assert f()"]}],
    "tests_prompt_number": [{"prompt": 3, "tests": ["assert f()"]}],
    "tests_setup": [{"prompt": "p", "tests": ["assert f()"], "setup": 3}],
    "human_half": [{"prompt": "p", "test": "def check(c): pass"}],
    "human_point": [{"prompt": "p", "test": "x", "entry_point": 3}],
    "mbpp_empty": [{"text": "p", "test_list": []}],
    "shell_ok": [{"prompt": "p", "expected_files": {"a": "b"}, "solution": "true"}] * 20,
    "shell_no_expected": [{"prompt": "p"}],
    "shell_path": [{"prompt": "p", "files": {"/etc/x": "y"}, "expected_files": {"a": "b"}}],
    "shell_up": [{"prompt": "p", "files": {"a/../../x": "y"}, "expected_files": {"a": "b"}}],
    "shell_number": [{"prompt": "p", "files": {"a": 3}, "expected_files": {"a": "b"}}],
    "shell_list": [{"prompt": "p", "files": ["a"], "expected_files": {"a": "b"}}],
    "shell_prompt": [{"prompt": 3, "expected_files": {"a": "b"}}],
    "shell_solution": [{"prompt": "p", "expected_files": {"a": "b"}, "solution": 3}],
    "shell_nul": [{"prompt": "p", "files": {"a\0b": "x"}, "expected_files": {"a": "b"}}],
    "chat_role": [{"messages": [{"role": "king", "content": "x"}, {"role": "assistant", "content": "y"}]}],
    "chat_none": [{"messages": []}],
    "chat_text": [{"messages": "hello"}],
    "chat_no_reply": [{"messages": [{"role": "user", "content": "x"}]}],
    "chat_content": [{"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "y"}]}],
    "chat_calls": [{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": "f"}]}],
    "chat_call": [
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": 3}]}]}
    ],
    "chat_first": [{"messages": [{"role": "tool", "content": "x"}]}],
    "chat_number": [{"messages": [3]}],
    "patch_none": [{"prompt": "p", "files": {"a": "b"}, "patch": ""}],
    "patch_list": [{"prompt": "p", "files": ["a"], "patch": "x"}],
    "patch_apply": [{"prompt": "p", "files": {"a": "b\n"}, "patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"}],
}


def make(folder: Path) -> None:
    """Writes them."""
    (folder / "agents.py").write_text(CODE)
    (folder / "fails.py").write_text("raise SystemExit(3)\n")
    (folder / "agent.py").write_text("print('x')\n")
    (folder / "agent_dies.py").write_text("raise SystemExit(3)\n")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "deep.jsonl").write_text('{"prompt": "p", "tests": ' + "[" * 5000 + "]" * 5000 + "}\n")
    (folder / "plain.jsonl").write_text(
        "".join(json.dumps({"prompt": f"p{k}", "answer": f"{k}"}) + "\n" for k in range(30))
    )
