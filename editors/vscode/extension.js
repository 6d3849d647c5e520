// A client of `kvgen lsp` with nothing to install or build: it speaks the protocol itself.
"use strict";

const { spawn } = require("child_process");
const vscode = require("vscode");

const LANGUAGE = "kvgen";

/** JSON-RPC over the pipes of a process. `told` gets the notifications. */
class Connection {
  constructor(command, told, ended) {
    this.waiting = new Map();
    this.last = 0;
    this.buffer = Buffer.alloc(0);
    this.told = told;
    this.process = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"] });
    this.process.stdout.on("data", (data) => this.receive(data));
    this.process.on("error", (error) => ended(error.message));
    this.process.on("exit", (status) => ended(`it ended with status ${status}: ${this.errors}`));
    this.process.stdin.on("error", () => {}); // the exit says why
    this.errors = "";
    this.process.stderr.on("data", (data) => (this.errors = (this.errors + data).slice(-500)));
  }

  send(message) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  tell(method, params) {
    this.send({ method, params });
  }

  ask(method, params) {
    const id = ++this.last;
    this.send({ id, method, params });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  receive(data) {
    this.buffer = Buffer.concat([this.buffer, data]);
    for (;;) {
      const end = this.buffer.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = /content-length: *(\d+)/i.exec(this.buffer.subarray(0, end).toString());
      const next = end + 4 + Number(head[1]);
      if (this.buffer.length < next) return;
      const message = JSON.parse(this.buffer.subarray(end + 4, next).toString());
      this.buffer = this.buffer.subarray(next);
      this.take(message);
    }
  }

  take(message) {
    const waiting = message.method ? undefined : this.waiting.get(message.id);
    if (waiting) {
      this.waiting.delete(message.id);
      if (message.error) waiting.reject(new Error(message.error.message));
      else waiting.resolve(message.result);
    } else if (message.method && message.id === undefined) {
      this.told(message.method, message.params);
    } else if (message.method) {
      this.send({ id: message.id, result: null });
    }
  }
}

// -- Between the protocol's values and VS Code's: both count from 0, in UTF-16 units

const range = (r) =>
  new vscode.Range(r.start.line, r.start.character, r.end.line, r.end.character);
const edits = (list) => (list || []).map((e) => new vscode.TextEdit(range(e.range), e.newText));
const markdown = (text) => new vscode.MarkdownString(text);

function diagnostic(found) {
  const made = new vscode.Diagnostic(range(found.range), found.message, found.severity - 1);
  made.code = found.code;
  made.source = found.source;
  made.relatedInformation = (found.relatedInformation || []).map(
    ({ location, message }) =>
      new vscode.DiagnosticRelatedInformation(
        new vscode.Location(vscode.Uri.parse(location.uri), range(location.range)),
        message,
      ),
  );
  return made;
}

function completion(found) {
  const made = new vscode.CompletionItem(found.label, found.kind - 1);
  made.detail = found.detail;
  made.sortText = found.sortText;
  if (found.documentation) made.documentation = markdown(found.documentation.value);
  return made;
}

function action(found) {
  const kind = vscode.CodeActionKind.Empty.append(found.kind);
  const made = new vscode.CodeAction(found.title, kind);
  made.isPreferred = found.isPreferred;
  made.edit = new vscode.WorkspaceEdit();
  for (const [uri, list] of Object.entries(found.edit.changes)) {
    made.edit.set(vscode.Uri.parse(uri), edits(list));
  }
  return made;
}

// -- The extension

let connection;

async function activate(context) {
  const problems = vscode.languages.createDiagnosticCollection(LANGUAGE);
  const command = vscode.workspace.getConfiguration(LANGUAGE).get("command");
  let stopping = false;
  connection = new Connection(
    command,
    (method, params) => {
      if (method === "textDocument/publishDiagnostics") {
        problems.set(vscode.Uri.parse(params.uri), params.diagnostics.map(diagnostic));
      }
    },
    (why) => {
      if (stopping) return;
      stopping = true;
      vscode.window.showWarningMessage(
        `kvgen: \`${command.join(" ")}\` does not run: ${why} ` +
          "pip install 'kvgen[lsp]', or set kvgen.command.",
      );
    },
  );
  context.subscriptions.push(problems, { dispose: () => (stopping = true) });
  await connection.ask("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
  connection.tell("initialized", {});
  follow(context);
  answer(context);
}

/** Every text of the language, from its opening on. */
function follow(context) {
  const ours = (document) => document.languageId === LANGUAGE;
  const opened = (document) => {
    if (!ours(document)) return;
    connection.tell("textDocument/didOpen", {
      textDocument: {
        uri: document.uri.toString(),
        languageId: LANGUAGE,
        version: document.version,
        text: document.getText(),
      },
    });
  };
  vscode.workspace.textDocuments.forEach(opened);
  context.subscriptions.push(
    vscode.workspace.onDidOpenTextDocument(opened),
    vscode.workspace.onDidChangeTextDocument(({ document }) => {
      if (!ours(document)) return;
      connection.tell("textDocument/didChange", {
        textDocument: { uri: document.uri.toString(), version: document.version },
        contentChanges: [{ text: document.getText() }],
      });
    }),
    vscode.workspace.onDidCloseTextDocument((document) => {
      if (!ours(document)) return;
      const textDocument = { uri: document.uri.toString() };
      connection.tell("textDocument/didClose", { textDocument });
    }),
  );
}

function answer(context) {
  const at = (document, position) => ({
    textDocument: { uri: document.uri.toString() },
    position: { line: position.line, character: position.character },
  });
  const languages = vscode.languages;
  context.subscriptions.push(
    languages.registerHoverProvider(LANGUAGE, {
      async provideHover(document, position) {
        const found = await connection.ask("textDocument/hover", at(document, position));
        return found && new vscode.Hover(markdown(found.contents.value));
      },
    }),
    languages.registerCompletionItemProvider(LANGUAGE, {
      async provideCompletionItems(document, position) {
        const found = await connection.ask("textDocument/completion", at(document, position));
        return found.map(completion);
      },
    }, " "),
    languages.registerDefinitionProvider(LANGUAGE, {
      async provideDefinition(document, position) {
        const found = await connection.ask("textDocument/definition", at(document, position));
        return found && new vscode.Location(vscode.Uri.parse(found.uri), range(found.range));
      },
    }),
    languages.registerDocumentFormattingEditProvider(LANGUAGE, {
      async provideDocumentFormattingEdits(document, { tabSize, insertSpaces }) {
        const textDocument = { uri: document.uri.toString() };
        const options = { tabSize, insertSpaces };
        return edits(await connection.ask("textDocument/formatting", { textDocument, options }));
      },
    }),
    languages.registerCodeActionsProvider(LANGUAGE, {
      async provideCodeActions(document, wanted, { only }) {
        const place = ({ line, character }) => ({ line, character });
        const found = await connection.ask("textDocument/codeAction", {
          textDocument: { uri: document.uri.toString() },
          range: { start: place(wanted.start), end: place(wanted.end) },
          context: { diagnostics: [], ...(only ? { only: [only.value] } : {}) },
        });
        return found.map(action);
      },
    }),
  );
}

async function deactivate() {
  await connection.ask("shutdown", null);
  connection.tell("exit", null);
}

module.exports = { activate, deactivate };
