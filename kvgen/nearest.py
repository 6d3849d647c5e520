"""The nearest known word to a misspelt one, found without comparing it with every word there is.

Two words are near when few letters have to be left out of both until they are the same, so an index of the words with
letters left out answers at once, however many names a file declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_REMEMBERED = 1000
_LONGEST = 32  # no help beyond: the variants of a word grow with its length


class Nearest:
    """An index of known words. `letters`: how many letters may be wrong, 1 or 2."""

    def __init__(self, words: Iterable[str], letters: int) -> None:
        self._letters = letters
        self._index: dict[str, list[str]] = {}
        # The same mistake is often made again.
        self._answers: dict[str, tuple[int, str] | None] = {}
        self._longest = 0
        for word in words:
            self._longest = max(self._longest, len(word))
            for variant in _variants(word.lower(), letters):
                known = self._index.setdefault(variant, [])
                if len(known) < 8:  # more words this close to each other help nobody
                    known.append(word)

    def of(self, word: str) -> str | None:
        """The nearest known word, None if none is near."""
        found = self.ranked(word)
        return found[1] if found else None

    def ranked(self, word: str) -> tuple[int, str] | None:
        """The number of wrong letters (case aside), and the word."""
        if word not in self._answers:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            self._answers[word] = self._search(word)
        return self._answers[word]

    def _search(self, word: str) -> tuple[int, str] | None:
        lower = word.lower()
        if len(word) > self._longest + self._letters:
            return None
        best: tuple[int, str] | None = None
        seen: set[str] = set()
        for variant in _variants(lower, self._letters):
            for known in self._index.get(variant, ()):
                if known in seen:
                    continue
                seen.add(known)
                wrong = distance(lower, known.lower())
                if wrong <= _tolerated(lower, self._letters) and (best is None or wrong < best[0]):
                    best = (wrong, known)
        return best


def _tolerated(word: str, letters: int) -> int:
    """One wrong letter in a short word, two in a longer one."""
    return min(letters, 0 if len(word) < 2 else 1 if len(word) < 5 else 2)


def _variants(word: str, letters: int) -> Iterator[str]:
    """The word, and what is left of it without one letter or two."""
    yield word
    if len(word) > _LONGEST:
        return
    for i in range(len(word)):
        one_less = word[:i] + word[i + 1 :]
        yield one_less
        if letters > 1:
            for j in range(i, len(one_less)):
                yield one_less[:j] + one_less[j + 1 :]


def distance(a: str, b: str) -> int:
    """Letters to add, drop, change or swap with the next one to make `b` of `a`."""
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]
