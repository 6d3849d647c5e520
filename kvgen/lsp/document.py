"""One text in an editor, and the answers about it in the protocol's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls import uris

from kvgen import wording
from kvgen.diagnostics import Diagnostic, Severity
from kvgen.fmt import format_text
from kvgen.lsp.complete import Item, Sort, complete
from kvgen.lsp.look import declaration_of, hover
from kvgen.lsp.positions import Positions
from kvgen.mend import mend
from kvgen.pipeline import Checked, check_text, table_beside, with_table
from kvgen.source import Span
from kvgen.tuned import TableFile

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.kvgen"

_BOM = "\ufeff"
_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
}
_SORT = {
    Sort.OPTION: types.CompletionItemKind.EnumMember,
    Sort.CLAUSE: types.CompletionItemKind.Property,
    Sort.POLICY: types.CompletionItemKind.Class,
    Sort.DECLARATION: types.CompletionItemKind.Keyword,
}


@dataclass(frozen=True, slots=True)
class Document:
    """The text as the editor has it, read once. `beside`: the problems of the tuned table that lies beside it."""

    uri: str
    text: str
    checked: Checked
    beside: tuple[Diagnostic, ...]
    positions: Positions

    # -- Answers

    def problems(self) -> dict[str, list[types.Diagnostic]]:
        """By URI: the text's, and those of its tuned table."""
        found = {self.uri: [self._problem(one) for one in self.checked.diagnostics]}
        for one in self.beside:
            table = Positions(one.source, self.positions.encoding, marked=False)
            uri = uris.from_fs_path(one.source.name) or one.source.name
            found.setdefault(uri, []).append(_problem(one, _range(table, one.primary.span), []))
        return found

    def hover(self, at: types.Position) -> types.Hover | None:
        page = hover(self.checked, self._offset(at))
        return types.Hover(_markdown(page)) if page else None

    def completion(self, at: types.Position) -> list[types.CompletionItem]:
        items = complete(self.checked, self._offset(at))
        return [_item(index, one) for index, one in enumerate(items)]

    def definition(self, at: types.Position) -> types.Location | None:
        declared = declaration_of(self.checked, self._offset(at))
        return declared and types.Location(self.uri, self._range(declared.name.span))

    def formatting(self) -> list[types.TextEdit]:
        """None where the text cannot be read: the problems say why."""
        formatted, _ = format_text(self.text, self.checked.source.name)
        return [] if formatted is None else self._replaced(formatted)

    def fixes(self, asked: types.CodeActionParams) -> list[types.CodeAction]:
        """A fix for each problem in the range, and one for all."""
        first, last = self._offset(asked.range.start), self._offset(asked.range.end)
        found = [
            self._fix(one, asked)
            for one in self.checked.diagnostics
            if one.fix and one.primary.span.start <= last and first <= one.primary.span.end
        ]
        wanted = asked.context.only
        actions = [*found, *self._fix_all()]
        return [one for one in actions if wanted is None or _is_wanted(one.kind, wanted)]

    # -- Parts of them

    def _problem(self, one: Diagnostic) -> types.Diagnostic:
        related = [
            types.DiagnosticRelatedInformation(
                types.Location(self.uri, self._range(label.span)), label.text
            )
            for label in one.secondary
        ]
        return _problem(one, self._range(one.primary.span), related)

    def _fix(self, one: Diagnostic, asked: types.CodeActionParams) -> types.CodeAction:
        mended = self._problem(one)
        same = [
            told
            for told in asked.context.diagnostics
            if told.code == one.code and told.range == mended.range
        ]
        return types.CodeAction(
            title=wording.edits(one, "put in", "leave out", "write"),
            kind=types.CodeActionKind.QuickFix,
            diagnostics=same or [mended],
            is_preferred=True,
            edit=self._change([self._edit(*edit) for edit in one.edits]),
        )

    def _fix_all(self) -> list[types.CodeAction]:
        mended = mend(self.text.encode("utf-8", "replace"), self.checked.source.name)
        if not mended.fixed:
            return []
        edit = self._change(self._replaced(mended.text))
        return [types.CodeAction("Fix all that kvgen can fix", FIX_ALL, edit=edit)]

    def _change(self, edits: list[types.TextEdit]) -> types.WorkspaceEdit:
        return types.WorkspaceEdit(changes={self.uri: edits})

    def _replaced(self, text: str) -> list[types.TextEdit]:
        """All of the text, save a byte order mark, which an editor keeps to itself."""
        before, after = self.checked.source.text, text.removeprefix(_BOM)
        return [] if before == after else [self._edit(Span(0, len(before)), after)]

    def _edit(self, span: Span, text: str) -> types.TextEdit:
        return types.TextEdit(self._range(span), text)

    def _range(self, span: Span) -> types.Range:
        return _range(self.positions, span)

    def _offset(self, at: types.Position) -> int:
        return self.positions.offset(at.line, at.character)


def document(uri: str, text: str, encoding: str) -> Document:
    """`encoding`: utf-8, utf-16 or utf-32, in which the editor counts columns."""
    path = uris.to_fs_path(uri)
    return _document(uri, text, encoding, table_beside(Path(path)) if path else None)


@lru_cache(maxsize=32)
def _document(uri: str, text: str, encoding: str, table: TableFile | None) -> Document:
    name = PurePosixPath(unquote(urlsplit(uri).path)).name or "untitled.kv"
    checked = check_text(text, name)
    beside = with_table(checked, table).diagnostics[len(checked.diagnostics) :]
    positions = Positions(checked.source, encoding, text.startswith(_BOM))
    return Document(uri, text, checked, beside, positions)


def _problem(
    one: Diagnostic, place: types.Range, related: list[types.DiagnosticRelatedInformation]
) -> types.Diagnostic:
    return types.Diagnostic(
        range=place,
        message=f"{one.message}: {one.primary.text}\n{one.help}",
        severity=_SEVERITY[one.severity],
        code=one.code,
        source="kvgen",
        related_information=related,
    )


def _range(positions: Positions, span: Span) -> types.Range:
    start, end = positions.range(span)
    return types.Range(types.Position(*start), types.Position(*end))


def _item(index: int, one: Item) -> types.CompletionItem:
    return types.CompletionItem(
        label=one.word,
        kind=_SORT[one.sort],
        detail=one.detail,
        documentation=_markdown(one.page) if one.page else None,
        sort_text=f"{index:04}",
    )


def _markdown(text: str) -> types.MarkupContent:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def _is_wanted(
    kind: types.CodeActionKind | str | None, wanted: Sequence[types.CodeActionKind | str]
) -> bool:
    """An editor asks for a kind or for all below it: `source` is `source.fixAll.kvgen` too."""
    have = f"{_text(kind)}."
    return any(have.startswith(f"{_text(one)}.") for one in wanted)


def _text(kind: types.CodeActionKind | str | None) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind or ""
