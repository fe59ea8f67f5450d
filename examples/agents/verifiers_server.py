"""Serves an environment of the library verifiers to `--agent`: its rollouts are played by the policy that is trained.

    python verifiers_server.py ENV        # where verifiers (0.1.9 to 0.3) and ENV are installed
    assay train grpo --agent http://127.0.0.1:8400/ --task ENV-train.jsonl,ENV-test.jsonl \
        --reward verifiers_server.py:score --model FOLDER

The first command writes one row for each example of the environment and waits. Every POST plays one example: the
environment writes the messages, runs its tools, and asks the address that the request names; its rubric's reward is the
result. Nothing of Assay is needed here, and nothing of verifiers where the policy is trained.
"""

import argparse
import asyncio
import itertools
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def score(result, **columns):
    """Returns the rubric's reward of each episode: a function for --reward."""
    return [reward_of(left) for left in result]


def reward_of(left: str) -> float:
    """Returns the reward in what an episode left, 0 where there is none."""
    try:
        return float(json.loads(left)["reward"])
    except (ValueError, TypeError, KeyError):
        return 0.0


def shown(messages) -> str:
    """Returns the last message of a prompt as text: what a row shows of its example."""
    last = messages[-1]["content"] if isinstance(messages, list) and messages else messages
    return last if isinstance(last, str) else json.dumps(last, default=str)


class Environment:
    """An environment with the examples of both splits; it is loaded once, and plays in one loop for all requests."""

    def __init__(self, name: str, settings: dict) -> None:
        import verifiers

        if not hasattr(verifiers, "load_environment"):
            raise SystemExit("verifiers has no load_environment. Use 'verifiers>=0.1.9,<0.4'")
        from verifiers.types import ClientConfig

        self.client, self.number = ClientConfig, itertools.count()
        self.inside = verifiers.load_environment(name, **settings)
        self.examples = {"train": self.rows_of("get_dataset"), "test": self.rows_of("get_eval_dataset")}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def rows_of(self, name: str) -> list:
        """Returns the examples of a split; none where the environment has no such dataset."""
        try:
            return [dict(row) for row in getattr(self.inside, name)()]
        except ValueError:
            return []

    def write(self, place: str) -> list[str]:
        """Writes PLACE-train.jsonl and, of the examples that are not in it too, PLACE-test.jsonl; returns the files."""
        written, seen = [], set()
        for split, examples in self.examples.items():
            numbered = [(shown(row["prompt"]), number) for number, row in enumerate(examples)]
            rows = [{"prompt": text, "example": number, "of": split} for text, number in numbered if text not in seen]
            seen.update(text for text, _ in numbered)
            if rows:
                written.append(f"{place}-{split}.jsonl")
                with open(written[-1], "w") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
        return written

    def play(self, asked: dict) -> dict:
        """Plays one example against the policy's address; raises RuntimeError where the environment failed."""
        variable = f"ASSAY_EPISODE_{next(self.number)}"  # verifiers reads keys from the environment alone
        os.environ[variable] = asked["api_key"]
        try:
            client = self.client(api_base_url=asked["base_url"], api_key_var=variable, max_retries=0)
            example = self.examples[asked["item"]["of"]][asked["item"]["example"]]
            playing = self.inside.run_rollout(example, client, "policy", {})
            found = asyncio.run_coroutine_threadsafe(playing, self.loop).result()
        finally:
            del os.environ[variable]
        if found.get("error"):
            raise RuntimeError(str(found["error"])[:1000])
        return {"reward": float(found["reward"] or 0.0), "metrics": found.get("metrics") or {}}


def handler_of(environment):
    """Returns the class that answers the requests of an environment."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, {"result": environment.play(asked)}
            except Exception as error:
                status, answer = 500, {"error": f"{type(error).__name__}: {error}"}
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *words) -> None:
            """Prints nothing."""

    return Handler


def main() -> None:
    """Writes the rows and answers until it is stopped."""
    parser = argparse.ArgumentParser(description="play an environment of verifiers for assay train --agent")
    parser.add_argument("name", help="an installed environment, or a module with load_environment")
    parser.add_argument("--settings", type=json.loads, default={}, help="its arguments as a JSON object")
    parser.add_argument("--rows", help="beginning of the files of rows (default: the environment's name)")
    parser.add_argument("--port", type=int, default=8400)
    options = parser.parse_args()
    environment = Environment(options.name, options.settings)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler_of(environment))
    files, address = ",".join(environment.write(options.rows or options.name.split("/")[-1])), f"http://127.0.0.1:{server.server_port}/"
    print(f"--agent {address} --task {files} --reward {__file__}:score", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
