"""`kvgen lsp`: problems, pages, completion, formatting and fixes in an editor.

`server` speaks the protocol and is the only one to know pygls; the others answer questions about a text with values.
"""
