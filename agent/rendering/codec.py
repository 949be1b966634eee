"""A tokenizer that never takes what people or tools wrote for control tokens."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Codec:
    """Text to ids and back, for a folder's `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        """Raises `FileNotFoundError` or `ValueError` where there is no such tokenizer."""
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; save the model with a fast tokenizer")
        text = path.read_text(encoding="utf-8")
        self._control = Tokenizer.from_str(text)
        self._plain = Tokenizer.from_str(text)
        self._plain.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: `<|im_end|>` in it becomes the characters, not the token."""
        return self._plain.encode(text, add_special_tokens=False).ids

    def encode_control(self, text: str) -> list[int]:
        """Ids of text of our own, in which control tokens are meant."""
        return self._control.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self._control.decode(ids, skip_special_tokens=False)

    def id(self, token: str) -> int | None:
        return self._control.token_to_id(token)

    def token(self, id: int) -> str | None:
        return self._control.id_to_token(id)

    def json(self) -> str:
        return self._control.to_str()

    def reader(self) -> "Reader":
        return Reader(self._control)


class Reader:
    """Ids to text as they come, never splitting a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def feed(self, id: int) -> str:
        """The characters that this id completes; often none for part of a character."""
        return self._stream.step(self._tokenizer, id) or ""
