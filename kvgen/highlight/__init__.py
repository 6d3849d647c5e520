"""Colours for policy files: a Pygments lexer and a TextMate grammar, both from the words of kv.lark."""
