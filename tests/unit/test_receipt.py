import pytest

from otel_llmprism.pipeline.receipt import Receipt


def test_receipt_tells_its_owner_once_when_the_last_piece_settles() -> None:
    told: list[str] = []
    receipt = Receipt(lambda: told.append("settled"))
    receipt.add_pieces(2)
    receipt.settle()
    receipt.settle()
    assert told == []
    receipt.settle()
    assert told == ["settled"]


def test_receipt_refuses_to_settle_or_grow_after_the_last_piece() -> None:
    receipt = Receipt(lambda: None)
    receipt.settle()
    with pytest.raises(RuntimeError, match="more often"):
        receipt.settle()
    with pytest.raises(RuntimeError, match="settled receipt"):
        receipt.add_pieces(1)
