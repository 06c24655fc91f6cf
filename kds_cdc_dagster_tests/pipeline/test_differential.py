"""Curated tables against the model's own rows, for every set-up of a connector: forms, modes, groups."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kds_cdc_dagster_tests.pipeline.site import interleaved, site
from kds_cdc_dagster_tests.synthetic.mode import Mode, catalogue_text
from kds_cdc_dagster_tests.synthetic.player import Player

MICROS = "adaptive_time_microseconds"
MODES = (
    Mode(),
    Mode(is_identity_full=True),
    Mode(form="wrapped"),
    Mode(form="wrapped", decimals="string", times="isostring", binaries="hex", has_transactions=True),
    Mode(form="flattened"),
    Mode(form="flattened_rich", decimals="double"),
    Mode(form="flattened", grouping="static"),
    Mode(decimals="string", times="connect"),
    Mode(decimals="double", times="isostring"),
    Mode(times="microseconds", intervals="string"),
    Mode(times="nanoseconds", binaries="hex"),
    Mode(times=MICROS, binaries="base64-url-safe", has_transactions=True),
    Mode(grouping="static"),
    Mode(grouping="static", is_identity_full=True, binaries="base64"),
    Mode(connector="mysql", times=MICROS),
    Mode(connector="mysql", times=MICROS, has_gtid=True, unsigned="precise"),
    Mode(connector="mysql", times="connect", form="wrapped", unsigned="precise", decimals="double"),
    Mode(connector="mysql", times="isostring", form="flattened", decimals="string"),
    Mode(connector="mysql", times="microseconds", grouping="static", binaries="hex"),
    Mode(connector="mariadb", times=MICROS, has_gtid=True, has_transactions=True),
    Mode(connector="mariadb", times="nanoseconds", form="flattened_rich", has_gtid=True),
    Mode(connector="mariadb", times=MICROS, form="wrapped", grouping="static"),
)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_curated_equals_the_source(mode: Mode, seed: int, tmp_path: Path) -> None:
    """However a connector is set up, and however groups overtake each other, curated is what the source holds."""
    capture = Player(mode, seed).play(30)
    with site(tmp_path, catalogue_text(mode), batch_records_max=120) as line:
        line.send(interleaved(capture.messages, Random(seed)))
        line.drain()
        line.load()
        line.assert_sound(capture.state)
        assert line.counts["received"] == len(capture.messages)


def test_the_wrapper_outranks_wrong_modes_in_the_catalogue(tmp_path: Path) -> None:
    """With schemas in the messages, modes that the catalogue states wrongly do no harm."""
    sent = Mode(form="wrapped", decimals="string", times="isostring", intervals="string")
    capture = Player(sent, 3).play(30)
    with site(tmp_path, catalogue_text(Mode(form="wrapped", times="nanoseconds"))) as line:
        line.send(capture.messages)
        line.drain()
        line.load()
        line.assert_sound(capture.state)
