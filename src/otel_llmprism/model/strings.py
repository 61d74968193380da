# Texts that stay where they came: places in a payload, decoded one by one and only when asked, matched
# and interned as columns. Knows no wire format.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class InternedTexts:
    """Each row's text as a number into the pool of different texts."""

    codes: U32
    pool: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One text a row, as offset and length in `payload`; a text that is not UTF-8 reads with U+FFFD."""

    payload: bytes
    offsets: U32
    lengths: U32

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> str:
        return self.read_raw(row).decode(errors="replace")

    def read_raw(self, row: int) -> bytes:
        """Return the bytes as they came."""
        start = int(self.offsets[row])
        return self.payload[start : start + int(self.lengths[row])]

    def match_text(self, text: str | bytes) -> Mask:
        """Tell which rows are `text`. Only rows of its length are looked at."""
        raw = text.encode() if isinstance(text, str) else text
        return self._match_raw(raw, self.lengths == len(raw))

    def match_prefix(self, prefix: str) -> Mask:
        """Tell which rows start with `prefix`."""
        raw = prefix.encode()
        return self._match_raw(raw, self.lengths >= len(raw))

    def intern_texts(self) -> InternedTexts:
        """Decode each different text once."""
        pool: dict[bytes, int] = {}
        codes = [pool.setdefault(self.read_raw(row), len(pool)) for row in range(len(self))]
        texts = tuple(raw.decode(errors="replace") for raw in pool)
        return InternedTexts(np.array(codes, dtype=np.uint32), texts)

    def _match_raw(self, raw: bytes, candidates: Mask) -> Mask:
        rows = np.flatnonzero(candidates)
        at = 0
        while at < len(raw) and len(rows):
            width = next(width for width in (8, 4, 2, 1) if width <= len(raw) - at)
            wanted = int.from_bytes(raw[at : at + width], "little")
            places = self.offsets[rows] + np.uint32(at)
            rows = rows[_view_words(self.payload, width)[places] == wanted]
            at += width
        mask = np.zeros(len(candidates), dtype=np.bool_)
        mask[rows] = True
        return mask


def _view_words(payload: bytes, width: int) -> npt.NDArray[np.unsignedinteger]:
    """Every `width` bytes of the payload as a number, one for each byte it can start at; no copy."""
    return np.ndarray((len(payload) - width + 1,), f"<u{width}", payload, strides=(1,))
