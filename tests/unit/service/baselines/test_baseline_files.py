# Models on disk: kept, replaced as a whole, and refused in one line where they are damaged.
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from otel_llmprism.service.baselines.baseline_codec import (
    BaselineFileError,
    decode_baselines,
    encode_baseline,
)
from otel_llmprism.service.baselines.baseline_folder import BaselineFolder
from otel_llmprism.service.baselines.stored_baseline import BaselineKey, StoredBaseline


def test_stored_model_comes_back_as_it_was(tmp_path: Path, stored: StoredBaseline) -> None:
    path = BaselineFolder(tmp_path / "models").save(stored)
    folder = BaselineFolder(tmp_path / "models")
    (found,) = folder.read_all()
    assert folder.problems == []
    assert (found.key, found.notes, found.model.version) == (stored.key, stored.notes, stored.model.version)
    assert found.offsets.keys() == {"e even", "e slow"}
    np.testing.assert_array_equal(
        found.model.predict(stored.probe).expected_ns, stored.model.predict(stored.probe).expected_ns
    )
    np.testing.assert_array_equal(found.probe.values, stored.probe.values)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_newer_model_of_a_key_takes_the_place_of_the_one_before(
    tmp_path: Path, stored: StoredBaseline
) -> None:
    folder = BaselineFolder(tmp_path)
    folder.save(stored)
    folder.save(replace(stored, notes=replace(stored.notes, seed=77)))
    assert [found.notes.seed for found in folder.read_all()] == [77]
    assert len(list(tmp_path.iterdir())) == 1


def test_keys_that_look_alike_have_files_of_their_own(tmp_path: Path, stored: StoredBaseline) -> None:
    folder = BaselineFolder(tmp_path)
    keys = [BaselineKey("a/b"), BaselineKey("a-b"), BaselineKey("a", "b"), BaselineKey("../../a b")]
    for key in keys:
        folder.save(replace(stored, key=key))
    assert [found.key for found in folder.read_all()] == sorted(keys)
    assert folder.read(BaselineKey("a/b")) is not None
    assert folder.read(BaselineKey("c")) is None


def test_full_disk_leaves_the_model_before_and_no_rest(
    tmp_path: Path, stored: StoredBaseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = BaselineFolder(tmp_path)
    folder.save(stored)

    def refuse(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        folder.save(replace(stored, notes=replace(stored.notes, seed=77)))
    assert [found.notes.seed for found in folder.read_all()] == [stored.notes.seed]
    assert len(list(tmp_path.iterdir())) == 1


def test_damaged_file_is_one_line_and_the_others_are_read(tmp_path: Path, stored: StoredBaseline) -> None:
    folder = BaselineFolder(tmp_path)
    folder.save(stored)
    (tmp_path / "bad.baseline").write_bytes(encode_baseline(stored)[:-9])
    assert len(folder.read_all()) == 1
    assert len(folder.problems) == 1
    assert folder.problems[0].startswith(str(tmp_path / "bad.baseline"))


@pytest.mark.parametrize(
    "raw",
    [
        b"\n", b"{}\n", b"[]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"tree\nversion=v4\n",
        b"\x80\x04K.\n",
        b'{"format": "llmprism.baseline/9"}\n', b'{"format": "llmprism.baseline/1", "bytes": -1}\n',
        b'{"format": "llmprism.baseline/1", "bytes": 1e9}\n', b"no newline",
    ],
)  # fmt: skip
def test_any_bytes_are_refused_in_one_line(raw: bytes) -> None:
    with pytest.raises(BaselineFileError) as refused:
        decode_baselines(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("offsets", {"i": {"2": 99.0}}),
        ("offsets", {"i": {"2": "nan"}}),
        ("offsets", {"i": 3}),
        ("offsets", []),
        ("notes", [1]),
        ("notes", None),
        ("key", 5),
        ("probe", {"names": ["a"], "kind": [1], "values": [[1, 2]]}),
        ("probe", {"names": ["a"], "kind": [-1], "values": [[1]]}),
        ("probe", {"names": ["a"], "kind": [1], "values": [[-1]]}),
    ],
)
def test_header_that_says_what_cannot_be_is_refused(stored: StoredBaseline, part: str, value: object) -> None:
    line, _, body = encode_baseline(stored).partition(b"\n")
    header = {**json.loads(line), part: value}
    with pytest.raises(BaselineFileError):
        decode_baselines(json.dumps(header).encode() + b"\n" + body)


def test_every_flipped_byte_is_refused_or_harmless(stored: StoredBaseline) -> None:
    raw = encode_baseline(stored)
    rng = np.random.default_rng(8)
    for place in rng.integers(0, len(raw), 300).tolist():
        damaged = bytearray(raw)
        damaged[place] ^= int(rng.integers(1, 256))
        try:
            (found,) = decode_baselines(bytes(damaged))
        except BaselineFileError:
            continue
        # Only the header may have changed: the model is under its checksum.
        assert found.model.version == stored.model.version


def test_models_one_after_another_are_all_read(stored: StoredBaseline) -> None:
    other = replace(stored, key=BaselineKey("other"))
    found = decode_baselines(encode_baseline(stored) + encode_baseline(other))
    assert [entry.key.engine for entry in found] == ["", "other"]
