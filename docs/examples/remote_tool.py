#!/usr/bin/env python3
"""A tool for pi-worker's agents, with nothing but Python's standard library.

    python3 remote_tool.py [HOST:PORT]

It speaks the NATS protocol over a plain socket, to show every byte that
matters. With nats-py the same is shorter; docs/remote-tools.md has the wire.
"""
import json
import socket
import sys
import uuid

SERVICE, ID, VERSION = "words", uuid.uuid4().hex, "1.0.0"
SUBJECT, QUEUE = "tools.count_words", "q"

ENDPOINT = {
    "name": "count_words",
    "subject": SUBJECT,
    "queue_group": QUEUE,
    "metadata": {
        "pi.tool": "count_words",
        "pi.description": "Count the words of a text.",
        "pi.parameters": json.dumps({
            "type": "object", "required": ["text"],
            "properties": {"text": {"type": "string", "description": "the text"}},
        }),
        "pi.idempotent": "true",
        "pi.timeout": "10s",
    },
}


class Nats:
    """Just enough of a NATS client: subscribe, publish, read."""

    def __init__(self, host, port):
        self.sock = socket.create_connection((host, port))
        self.file = self.sock.makefile("rb")
        self.file.readline()  # INFO
        self.send(b'CONNECT {"verbose":false,"headers":true,"name":"words","lang":"python"}\r\n')
        self.sids = 0

    def send(self, data):
        self.sock.sendall(data)

    def subscribe(self, subject, queue=""):
        self.sids += 1
        self.send(f"SUB {subject} {queue} {self.sids}\r\n".encode())

    def publish(self, subject, payload, headers=None):
        if not headers:
            self.send(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")
            return
        head = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        head = head.encode()
        self.send(f"HPUB {subject} {len(head)} {len(head) + len(payload)}\r\n".encode() + head + payload + b"\r\n")

    def messages(self):
        """Yield (subject, reply, headers, payload)."""
        for line in iter(self.file.readline, b""):
            words = line.decode().split()
            if not words:
                continue
            if words[0] == "PING":
                self.send(b"PONG\r\n")
            elif words[0] == "PONG":  # the server has taken all that was sent before our PING
                print("ready", flush=True)
            elif words[0] == "-ERR":
                sys.exit(line.decode())
            elif words[0] == "MSG":  # subject sid [reply] size
                data = self.file.read(int(words[-1]) + 2)[:-2]
                yield words[1], words[3] if len(words) == 5 else "", {}, data
            elif words[0] == "HMSG":  # subject sid [reply] header-size size
                data = self.file.read(int(words[-1]) + 2)[:-2]
                n = int(words[-2])
                pairs = (h.split(": ", 1) for h in data[:n].decode().split("\r\n")[1:] if ": " in h)
                yield words[1], words[3] if len(words) == 6 else "", dict(pairs), data[n:]


def identity(kind):
    return {"type": f"io.nats.micro.v1.{kind}", "name": SERVICE, "id": ID, "version": VERSION, "metadata": {}}


def main():
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:4222").partition(":")
    nc = Nats(host, int(port))
    # What makes it a NATS micro service: answers to INFO and PING.
    for verb in ("INFO", "PING"):
        for suffix in ("", f".{SERVICE}", f".{SERVICE}.{ID}"):
            nc.subscribe(f"$SRV.{verb}{suffix}")
    nc.subscribe(SUBJECT, QUEUE)
    nc.send(b"PING\r\n")
    for subject, reply, headers, data in nc.messages():
        if subject.startswith("$SRV.INFO"):
            info = {**identity("info_response"), "description": "counts words", "endpoints": [ENDPOINT]}
            nc.publish(reply, json.dumps(info).encode())
        elif subject.startswith("$SRV.PING"):
            nc.publish(reply, json.dumps(identity("ping_response")).encode())
        else:
            nc.publish(reply, b"counting", {"Pi-Update": "1"})  # progress, if there is any
            words = len(json.loads(data)["text"].split())
            result = {
                "content": [{"type": "text", "text": f"{words} words"}],
                "details": {"words": words, "key": headers.get("Pi-Call-Key", "")},
            }
            nc.publish(reply, json.dumps(result).encode())


main()
