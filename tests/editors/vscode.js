// Just enough of VS Code to run the extension: `node vscode.js EXTENSION COMMAND`, what happened goes to stdout as JSON.
"use strict";

const Module = require("module");

const [extension, command] = process.argv.slice(2);
const text = "kvgen 1\n\npolicy A {\n    heads query 8 kv 4\n    dim 8\n    windw 4\n}\n";
const uri = { toString: () => "file:///a.kv" };
const file = { languageId: "kvgen", uri, version: 1, getText: () => text };
const said = { problems: [], warnings: [], ended: false };
const providers = {};

class Value {
  constructor(...parts) {
    this.parts = parts;
  }
}
class WorkspaceEdit {
  set(_, edits) {
    this.edits = edits;
  }
}
const keeps = (name) => (_, provider) => ((providers[name] = provider), { dispose() {} });
const never = () => ({ dispose() {} });

const vscode = {
  Range: Value,
  TextEdit: Value,
  MarkdownString: Value,
  Diagnostic: Value,
  DiagnosticRelatedInformation: Value,
  Location: Value,
  CompletionItem: Value,
  CodeAction: Value,
  Hover: Value,
  WorkspaceEdit,
  Uri: { parse: (text) => text },
  CodeActionKind: { Empty: { append: (kind) => kind } },
  languages: {
    createDiagnosticCollection: () => ({
      set: (_, found) => (said.problems = found.map(({ code }) => ({ code }))),
      dispose() {},
    }),
    registerHoverProvider: keeps("hover"),
    registerCompletionItemProvider: keeps("completion"),
    registerDefinitionProvider: keeps("definition"),
    registerDocumentFormattingEditProvider: keeps("format"),
    registerCodeActionsProvider: keeps("fixes"),
  },
  workspace: {
    getConfiguration: () => ({ get: () => JSON.parse(command) }),
    textDocuments: [file],
    onDidOpenTextDocument: never,
    onDidChangeTextDocument: never,
    onDidCloseTextDocument: never,
  },
  window: { showWarningMessage: (message) => said.warnings.push(message) },
};

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const { activate, deactivate } = require(extension);

process.on("exit", () => console.log(JSON.stringify(said)));

async function session() {
  const context = { subscriptions: [] };
  await activate(context);
  const [line, end] = [5, 12];
  const range = { start: { line, character: 0 }, end: { line, character: end } };
  const hover = await providers.hover.provideHover(file, { line: 3, character: 6 });
  said.hover = hover.parts[0].parts[0];
  const items = await providers.completion.provideCompletionItems(file, { line, character: 6 });
  said.completion = items.map((item) => item.parts[0]);
  said.formatted = (await providers.format.provideDocumentFormattingEdits(file, { tabSize: 4, insertSpaces: true })).length;
  const fixes = await providers.fixes.provideCodeActions(file, range, {});
  said.fixes = fixes.map((fix) => fix.parts[0]);
  context.subscriptions.forEach((one) => one.dispose());
  await deactivate();
  said.ended = true;
}

session();
