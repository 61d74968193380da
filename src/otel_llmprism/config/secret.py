# A text that never shows itself by accident: printing, logging and formatting give asterisks.
HIDDEN = "******"


class Secret:
    """Holds a token or header value; only `reveal` gives it back."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one place that puts it on the wire."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN
