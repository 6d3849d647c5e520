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
    """Problems, as often as the text changes."""

    def publish(uri: str, version: int) -> None:
        problems = _document(made, uri).problems()
        made.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, problems, version)
        )

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _(told: types.DidOpenTextDocumentParams) -> None:
        publish(told.text_document.uri, told.text_document.version)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _(told: types.DidChangeTextDocumentParams) -> None:
        publish(told.text_document.uri, told.text_document.version)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _(told: types.DidCloseTextDocumentParams) -> None:
        none = types.PublishDiagnosticsParams(told.text_document.uri, [])
        made.text_document_publish_diagnostics(none)


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
