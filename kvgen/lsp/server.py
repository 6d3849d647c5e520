"""The language server: which question of the protocol goes to which answer of a document."""

from __future__ import annotations

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from kvgen import __version__
from kvgen.lsp.document import FIX_ALL, Document, document


def serve() -> bool:
    """On standard input and output, until the editor ends it; whether it did so in due form.

    Texts come whole: policies are short, and nothing can get out of step.
    """
    whole = types.TextDocumentSyncKind.Full
    made = LanguageServer("kvgen", __version__, text_document_sync_kind=whole)
    _tell(made)
    _answer(made)
    ended: list[None] = []

    @made.feature(types.SHUTDOWN)
    def _(asked: None) -> None:
        ended.append(asked)

    made.start_io()
    return bool(ended)


def _document(made: LanguageServer, uri: str) -> Document:
    encoding = made.workspace.position_encoding or types.PositionEncodingKind.Utf16
    unit = encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding
    return document(uri, made.workspace.get_text_document(uri).source, unit)


def _tell(made: LanguageServer) -> None:
    """Problems, as often as the text changes: its own, and those of the tuned table beside it."""
    told: dict[str, set[str]] = {}  # where problems are shown because of a text

    def show(uri: str, found: list[types.Diagnostic], version: int | None = None) -> None:
        params = types.PublishDiagnosticsParams(uri, found, version)
        made.text_document_publish_diagnostics(params)

    def publish(uri: str, version: int) -> None:
        found = _document(made, uri).problems()
        show(uri, found.pop(uri), version)
        for beside in told.pop(uri, set()) - found.keys():
            show(beside, [])
        for beside, problems in found.items():
            show(beside, problems)
        told[uri] = set(found)

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _(opened: types.DidOpenTextDocumentParams) -> None:
        publish(opened.text_document.uri, opened.text_document.version)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _(changed: types.DidChangeTextDocumentParams) -> None:
        publish(changed.text_document.uri, changed.text_document.version)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _(closed: types.DidCloseTextDocumentParams) -> None:
        for uri in (closed.text_document.uri, *told.pop(closed.text_document.uri, ())):
            show(uri, [])


def _answer(made: LanguageServer) -> None:
    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def _(asked: types.HoverParams) -> types.Hover | None:
        return _document(made, asked.text_document.uri).hover(asked.position)

    @made.feature(types.TEXT_DOCUMENT_COMPLETION)
    def _(asked: types.CompletionParams) -> list[types.CompletionItem]:
        return _document(made, asked.text_document.uri).completion(asked.position)

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    def _(asked: types.DefinitionParams) -> types.Location | None:
        return _document(made, asked.text_document.uri).definition(asked.position)

    @made.feature(types.TEXT_DOCUMENT_FORMATTING)
    def _(asked: types.DocumentFormattingParams) -> list[types.TextEdit]:
        return _document(made, asked.text_document.uri).formatting()

    kinds = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL])

    @made.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)
    def _(asked: types.CodeActionParams) -> list[types.CodeAction]:
        return _document(made, asked.text_document.uri).fixes(asked)
