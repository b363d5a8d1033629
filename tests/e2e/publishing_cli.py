"""A CLI that does what its prompt says, between an init and a result, and notes how it went.

The prompt holds ``<<python>>code<</python>>``: run with ``authority`` and ``work`` defined.
"""

import json
import os
import re
import subprocess
import sys

ID = "11111111-1111-4111-8111-111111111111"


def say(**event):
    print(json.dumps({**event, "session_id": ID}), flush=True)


def main():
    from agentsdock.testing import fake_agent

    prompt = " ".join(sys.argv)
    found = re.search(r"<<python>>(.*?)<</python>>", prompt, re.DOTALL)
    if "-p" not in sys.argv or found is None:
        status = fake_agent.main()
        sys.stdout.flush()
        return status
    say(type="system", subtype="init", cwd=os.getcwd(), model="Auto")
    named = re.search(r"--authority-file (\S+)", prompt)
    authority = named.group(1) if named else ""

    def publish(*args, **environ):
        return subprocess.run(
            [os.environ["AGENTSDOCK_PUBLISH_CLI"], "--authority-file", authority, *args],
            capture_output=True,
            text=True,
            env={**os.environ, **environ},
            check=False,
        )

    told = []
    exec(found.group(1), {"publish": publish, "authority": authority, "told": told.append})
    answer = json.dumps(told)
    say(
        type="assistant",
        message={"role": "assistant", "content": [{"type": "text", "text": answer}]},
    )
    say(type="result", subtype="success", is_error=False, result=answer)
    return 0
