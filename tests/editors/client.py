"""An editor: `kvgen lsp` in a process of its own, spoken to over stdio."""

import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from threading import Timer

URI = "file:///work%20space/local.kv"
ROOT = Path(__file__).parents[2]


class Editor:
    """`with Editor() as editor`: started and greeted; `told` are the notifications that nobody waited for yet."""

    def __init__(self, **capabilities):
        command = [sys.executable, "-m", "kvgen", "lsp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT)
        self.last, self.version = 0, 0
        self.told = deque()
        self.can = self.ask("initialize", processId=None, rootUri=None, capabilities=capabilities)
        self.tell("initialized")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        self.process.wait()

    # -- The protocol

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self):
        alarm = Timer(60, self.process.kill)  # a test that waits in vain fails, and does not hang
        alarm.start()
        try:
            return self._receive()
        finally:
            alarm.cancel()

    def _receive(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, self.process.stderr.read().decode()
        return json.loads(self.process.stdout.read(length))

    def tell(self, method, **params):
        self.send(method=method, params=params)

    def ask(self, method, **params):
        self.last += 1
        self.send(id=self.last, method=method, params=params)
        while (message := self.receive()).get("id") != self.last:
            self.told.append(message)
        assert "error" not in message, message["error"]
        return message["result"]

    def hear(self, method):
        """The next notification of a kind."""
        while True:
            message = self.told.popleft() if self.told else self.receive()
            if message.get("method") == method:
                return message["params"]

    # -- One file

    def open(self, text):
        document = {"uri": URI, "languageId": "kvgen", "version": 0, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)
        return self.problems()

    def type(self, text):
        self.version += 1
        document = {"uri": URI, "version": self.version}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])
        return self.problems()

    def problems(self):
        return self.hear("textDocument/publishDiagnostics")["diagnostics"]

    def at(self, method, text, mark="|"):
        """Ask about the place of the mark in a text, which is put into the editor without it."""
        line, column = place(text, text.index(mark))
        self.type(text.replace(mark, "", 1))
        position = {"line": line, "character": column}
        return self.ask(f"textDocument/{method}", textDocument={"uri": URI}, position=position)

    def formatted(self):
        options = {"tabSize": 4, "insertSpaces": True}
        return self.ask("textDocument/formatting", textDocument={"uri": URI}, options=options)

    def actions(self, line, only=None, diagnostics=()):
        whole = {
            "start": {"line": line, "character": 0},
            "end": {"line": line, "character": 999},
        }
        context = {"diagnostics": list(diagnostics), **({"only": only} if only else {})}
        return self.ask(
            "textDocument/codeAction", textDocument={"uri": URI}, range=whole, context=context
        )


def place(text, offset):
    """Line and column as the protocol counts them: from 0, in UTF-16 units."""
    before = text[:offset].split("\n")
    return len(before) - 1, len(before[-1].encode("utf-16-le")) // 2


def cut(text, found):
    """The text of a range."""
    lines = text.split("\n")
    start, end = found["start"], found["end"]
    assert start["line"] == end["line"]
    units = lines[start["line"]].encode("utf-16-le")
    return units[start["character"] * 2 : end["character"] * 2].decode("utf-16-le")


def apply(text, edits):
    """Edits, made from the last to the first."""
    lines = text.split("\n")
    starts = [sum(len(one) + 1 for one in lines[:i]) for i in range(len(lines))]

    def offset(at):
        units = lines[at["line"]].encode("utf-16-le")[: at["character"] * 2]
        return starts[at["line"]] + len(units.decode("utf-16-le"))

    spans = [
        (offset(one["range"]["start"]), offset(one["range"]["end"]), one["newText"])
        for one in edits
    ]
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text
