"""Identity and content hash."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kds_cdc_dagster.core.identity import canonical, content_hash, identity, identity_after, stem
from kds_cdc_dagster.core.position import arrival, hex_number, lcr, lsn_text, postgresql, row_order

RAW = msgspec.json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))


def test_the_order_of_keys_does_not_matter_but_digits_do() -> None:
    """Canonical form: keys sorted, numbers as they were written."""
    left, right, other = (
        RAW.decode(text) for text in ('{"a":1.50,"b":[1]}', '{"b":[1],"a":1.50}', '{"a":1.5,"b":[1]}')
    )
    assert content_hash("u", "[1]", None, left) == content_hash("u", "[1]", None, right)
    assert content_hash("u", "[1]", None, left) != content_hash("u", "[1]", None, other)


def test_hashes_are_those_of_the_journals_that_exist() -> None:
    """Another way to the same hash may be found, another hash would make every redelivery a new change."""
    assert content_hash("u", "[1]", None, {"b": [1, 2], "a": "x"}) == "45a48dfc4ad6a5ef"
    parts = ("prod", "kds", "db", "kds", "ticket", "u"), ("[1]", 200)
    assert identity(*parts[0], *parts[1]) == "3032d88cf0536774689e468d9c943473"
    common = stem(*parts[0])
    assert [identity_after(common, *parts[1]) for _ in range(2)] == ["3032d88cf0536774689e468d9c943473"] * 2


def test_every_part_of_the_content_counts() -> None:
    """Operation, key, before and after each change the hash."""
    hashes = {
        content_hash("u", "[1]", None, {"a": 1}),
        content_hash("c", "[1]", None, {"a": 1}),
        content_hash("u", "[2]", None, {"a": 1}),
        content_hash("u", "[1]", {"a": 1}, {"a": 1}),
        content_hash("u", "[1]", {"a": 1}, None),
    }
    assert len(hashes) == 5
    assert {len(text) for text in hashes} == {16}


@given(st.lists(st.text(), min_size=2, max_size=5))
def test_parts_do_not_run_together(parts: list[str]) -> None:
    """("ab", "c") and ("a", "bc") are two identities, whatever separators the parts contain."""
    joined = [parts[0] + parts[1], *parts[2:]]
    assert identity(*parts) != identity(*joined)
    assert identity(*parts) == identity(*parts)


def test_canonical_keys_keep_types_apart() -> None:
    """The number 7 and the text "7" are two keys."""
    assert canonical([7, "7"]) == '[7,"7"]'


@given(st.integers(0, 2**64 - 2), st.integers(0, 2**64 - 2), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_positions_compare_as_their_numbers(commit: int, other: int, lsn: int, other_lsn: int) -> None:
    """Text order is number order, and no first part at all is below every one."""
    left, right = postgresql(commit, lsn), postgresql(other, other_lsn)
    assert (left < right) == ((commit, lsn) < (other, other_lsn))
    assert postgresql(None, lsn) < left
    assert len(left) == len(right) == 48


def test_log_sequence_numbers_are_normalised() -> None:
    """Short parts are padded, capitals lowered; Db2's longer last part fits as well."""
    assert lsn_text("2A:1010:9") == lsn_text("0000002a:00001010:0009")
    assert len(lsn_text("00000000:00000000:0000000000495b00")) == 48


def test_row_orders_have_one_width_for_every_queue() -> None:
    """Kinesis' sequence numbers have 56 decimal digits, SQS' have 20."""
    kinesis, sqs = "4" + "9" * 55, "18850000000000000000"
    orders = {len(row_order(1, 1, arrival(number), 1, number)) for number in (kinesis, sqs)}
    assert len(orders) == 1


def test_numbers_that_do_not_fit_are_refused() -> None:
    """A position is never cut."""
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError, match="does not fit"):
            hex_number(wrong, 16)
    with pytest.raises(ValueError, match="LCR"):
        lcr("00" * 37)
    for commit, lsn in ((None, -1), (None, 1 << 64), (-2, 1), ((1 << 68) - 1, 1)):
        with pytest.raises(ValueError, match="log position"):
            postgresql(commit, lsn)
    for rank, number in ((1, "-1"), (1, str(1 << 192)), (16, "1"), (-1, "1")):
        with pytest.raises(ValueError, match=r"too wide|does not fit"):
            row_order(1, 1, "", rank, number)


def test_the_widest_numbers_fit() -> None:
    """The last that are not refused: every digit of the position is one of theirs."""
    assert postgresql((1 << 68) - 2, (1 << 64) - 1) == "f" * 33 + "0" * 15
    assert row_order(1, 1, "", 15, str((1 << 192) - 1)) == "000000011" + "f" * 49
