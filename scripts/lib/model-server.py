"""A model that plays a script, for real clients: model-server.py PORT_FILE LOG_FILE STEPS

Speaks OpenAI's chat completions and responses, Gemini's generateContent and Anthropic's messages, streamed or not. STEPS is a JSON list of
{"tool": NAME, "args": {…}}: the model calls one after the other, whatever prefix the client gives the names, and then answers with
"FINAL: " and the last result. Each request is a line of LOG_FILE: the protocol, the names of the tools it listed, and the results so far.
Listens on loopback and ends with its parent.
"""

import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT_FILE, LOG_FILE, STEPS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
LOCK = threading.Lock()


class Conversation:
    """What a request says, whatever its protocol."""

    def __init__(self, tools, results, images):
        self.tools, self.results, self.images = tools, results, images

    def next(self):
        """The next step as (name, arguments), or the final text."""
        if len(self.results) < len(STEPS):
            step = STEPS[len(self.results)]
            found = [name for name in self.tools if re.search(rf"(^|[^a-z]){step['tool']}$", name)]
            if found:
                # The client may have a tool of the same name.
                return max(found, key=lambda name: "llmc" in name), step["args"]
            if self.tools:
                return None, f"FINAL: no tool {step['tool']} among {self.tools}"
            # A client asks for a title or a summary beside the conversation.
            return None, "FINAL: nothing to do"
        return None, "FINAL: " + (self.results[-1] if self.results else "")


def text_of(value):
    """All text in a value, joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    if isinstance(value, dict):
        return "\n".join(filter(None, (text_of(v) for k, v in value.items() if k not in ("type", "id", "call_id", "data", "image_url"))))
    return ""


def has_image(value):
    text = json.dumps(value)
    return "data:image/" in text or '"inlineData"' in text or '"image/png"' in text


def chat(body):
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    messages = [message for message in body["messages"] if message["role"] == "tool"]
    return Conversation(tools, [text_of(message["content"]) for message in messages], has_image(body["messages"]))


def responses(body):
    tools = []
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            tools += [f"{tool['name']}|{inner['name']}" for inner in tool["tools"]]
        elif tool.get("type") in ("function", "custom"):
            tools.append(tool["name"])
    items = body["input"] if isinstance(body["input"], list) else []
    outputs = [item for item in items if item.get("type", "").endswith("_output")]
    return Conversation(tools, [text_of(item["output"]) for item in outputs], has_image(items))


def gemini(body):
    tools = [f["name"] for tool in body.get("tools") or [] for f in tool.get("functionDeclarations", [])]
    parts = [part for content in body["contents"] for part in content.get("parts", [])]
    results = [text_of(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
    return Conversation(tools, results, has_image(parts))


def messages(body):
    tools = [tool["name"] for tool in body.get("tools") or []]
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    results = [text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
    return Conversation(tools, results, has_image(blocks))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.json({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else self.chunked()
        path = self.path.split("?")[0]
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return self.json({}, 400)
        for end, read, write in (
            ("/chat/completions", chat, self.write_chat), ("/responses", responses, self.write_responses),
            (":generateContent", gemini, self.write_gemini), (":streamGenerateContent", gemini, self.write_gemini),
            ("/messages", messages, self.write_messages),
        ):
            if path.endswith(end):
                conversation = read(body)
                with LOCK, open(LOG_FILE, "a") as log:
                    row = {"protocol": end, "tools": conversation.tools, "results": conversation.results, "images": conversation.images}
                    log.write(json.dumps(row) + "\n")
                return write(body, *conversation.next())
        # Token counts, telemetry and the like.
        return self.json({"totalTokens": 1, "input_tokens": 1})

    def chunked(self):
        data = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        return data

    def json(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, events, named=False, end=None):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if end:
            self.wfile.write(f"data: {end}\n\n".encode())
        self.wfile.flush()
        self.close_connection = True

    def write_chat(self, body, name, value):
        call = {"id": f"call_{time.time_ns()}", "type": "function", "function": {"name": name, "arguments": json.dumps(value)}}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]} if name else {"role": "assistant", "content": value}
        reason = "tool_calls" if name else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        base = {"id": "chat-1", "created": int(time.time()), "model": body.get("model", "scripted")}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            return self.json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        if name:
            delta["tool_calls"] = [{"index": 0, **call}]
        chunk = {**base, "object": "chat.completion.chunk"}
        return self.events([
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**chunk, "choices": [], "usage": usage},
        ], end="[DONE]")

    def write_responses(self, body, name, value):
        if name:
            item = {"type": "function_call", "id": f"fc_{time.time_ns()}", "call_id": f"call_{time.time_ns()}", "status": "completed"}
            namespace, _, bare = name.rpartition("|")
            item |= {"name": bare, "arguments": json.dumps(value), **({"namespace": namespace} if namespace else {})}
        else:
            content = [{"type": "output_text", "text": value, "annotations": []}]
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {
            "id": f"resp_{time.time_ns()}", "object": "response", "created_at": int(time.time()), "model": body.get("model", "scripted"),
            "status": "completed", "output": [item], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details},
        }
        if not body.get("stream"):
            return self.json(response)
        return self.events([
            {"type": "response.created", "sequence_number": 0, "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
            {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
            {"type": "response.completed", "sequence_number": 3, "response": response},
        ], named=True)

    def write_gemini(self, body, name, value):
        part = {"functionCall": {"name": name, "args": value}} if name else {"text": value}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "scripted",
        }
        return self.events([answer]) if "stream" in self.path else self.json(answer)

    def write_messages(self, body, name, value):
        block = {"type": "tool_use", "id": f"toolu_{time.time_ns()}", "name": name, "input": value} if name else {"type": "text", "text": value}
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", "scripted"), "content": [block],
            "stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if not body.get("stream"):
            return self.json(message)
        delta = {"type": "input_json_delta", "partial_json": json.dumps(value)} if name else {"type": "text_delta", "text": value}
        start = {**block, **({"input": {}} if name else {"text": ""})}
        return self.events([
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ], named=True)


def end_with_parent():
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=end_with_parent, daemon=True).start()
with open(PORT_FILE + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(PORT_FILE + ".new", PORT_FILE)
server.serve_forever()
