"""An agent as users write them: it knows an OpenAI-style address from its environment, and nothing of this package.

python agent_program.py [once|talk|parallel|retry|models|long|many|silent|crash|sleep|spawn|loud]
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request


def chat(messages, **more):
    body = {"model": "gpt-4o-mini", "messages": messages, "temperature": 0.3, **more}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    if "retries" in body:
        headers["x-stainless-retry-count"] = str(body.pop("retries"))
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]


def main(how):
    item = json.loads(os.environ["ASSAY_ITEM"])
    talk = [{"role": "user", "content": item["prompt"]}]
    if how == "silent":
        print("nothing to ask")
        return ""
    reply = chat(talk)
    if how == "talk":
        for words in ("again", "and again"):
            talk += [reply, {"role": "user", "content": words}]
            reply = chat(talk)
    elif how == "parallel":
        threads = [threading.Thread(target=chat, args=([{"role": "user", "content": word}],)) for word in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reply = chat([*talk, reply, {"role": "user", "content": "end"}])
    elif how == "retry":
        assert chat(talk, retries=1) == reply
    elif how == "models":
        chat(talk, model="another")
    elif how == "long":
        chat([{"role": "user", "content": "x" * 10_000}])
    elif how == "many":
        while True:
            chat(talk)
    elif how == "crash":
        sys.exit("boom")
    elif how == "sleep":
        time.sleep(60)
    elif how == "spawn":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "4321")
    elif how == "loud":
        print("x" * 3_000_000)
    return reply["content"]


if __name__ == "__main__":
    left = main(sys.argv[1] if len(sys.argv) > 1 else "once")
    with open(os.environ["ASSAY_RESULT"], "w") as file:
        file.write(left)
