"""An MCP session over the standard streams of a server, for the scripts beside this folder. Standard library only, Python 3.8."""

import json
import os
import re
import signal
import subprocess
import threading

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "rows", "version": "1"},
}
ANSWER_TIMEOUT = 300


class Ended(Exception):
    """The server ended before it answered."""


class Server:
    """One server process in a session of its own, and what it was asked."""

    def __init__(self, command, cwd, environment, errors):
        self.errors = errors
        with open(errors, "ab") as log:
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.process = subprocess.Popen(command, cwd=cwd, env=environment, start_new_session=True, **streams)
        self.answers, self.arrived, self.next_id, self.at_end = {}, threading.Condition(), 0, False
        threading.Thread(target=self.read, daemon=True).start()
        self.hello = self.request("initialize", INITIALIZE).get("result", {})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "id" in message and "method" not in message:
                with self.arrived:
                    self.answers[message["id"]] = message
                    self.arrived.notify_all()
        with self.arrived:
            self.at_end = True
            self.arrived.notify_all()

    def send(self, message):
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise Ended(str(error)) from error

    def request(self, method, params):
        with self.arrived:
            self.next_id += 1
            number = self.next_id
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        with self.arrived:
            if not self.arrived.wait_for(lambda: number in self.answers or self.at_end, ANSWER_TIMEOUT):
                raise Ended(f"no answer in {ANSWER_TIMEOUT} s")
            if number not in self.answers:
                raise Ended("the server ended; " + self.last_errors())
            return self.answers.pop(number)

    def last_errors(self):
        with open(self.errors, errors="replace") as log:
            return " ".join(log.read().splitlines()[-2:])[-600:]

    def call(self, tool, **arguments):
        """The text of an answer, and whether the tool failed."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        result = answer.get("result")
        if result is None:
            return json.dumps(answer.get("error")), True
        return "\n".join(part.get("text", "") for part in result.get("content", [])), bool(result.get("isError"))

    def run(self, line, **arguments):
        """Runs a shell line with `run_cmd`: its exit code and the answer's text."""
        text, failed = self.call("run_cmd", command=line, **arguments)
        return exit_code(text, failed), text

    def close(self):
        """Ends the session as a client does, by closing standard input."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        """Kills the server and every process of its session."""
        for end in (lambda: os.killpg(self.process.pid, signal.SIGKILL), self.process.kill):
            try:
                end()
            except OSError:
                pass
        self.process.wait()


def exit_code(text, failed):
    """What an answer says about how its command ended, as a shell would; no line about it means 0."""
    said = re.findall(r"^(?:exit (\d+)|signal (\w+))$", text, re.MULTILINE)
    if not said:
        return 255 if failed else 0
    number, name = said[-1]
    return int(number) if number else 128 + getattr(signal, f"SIG{name}", 0)


def process_id(text):
    """The id of a command that runs on in the background, or None."""
    found = re.search(r"\bp_[0-9a-z]+", text)
    return found and found[0]
