"""Times: units by declared type, zone-less as they stand, zoned as instants."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from kds_cdc_dagster.core.values import LogicalType
from kds_cdc_dagster_tests.core.decoders import decoded, refused, source

MYSQL = source("mysql", time_precision_mode="adaptive_time_microseconds")


@pytest.fixture(params=["UTC", "Pacific/Auckland", "America/Chicago"])
def worker_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The worker's own time zone, which must not matter."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    clock.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    clock.tzset()


@pytest.mark.parametrize(
    ("days", "day"), [(19894, "2024-06-20"), (19782, "2024-02-29"), (-1, "1969-12-31"), (0, "1970-01-01"), (None, None)]
)
def test_dbz03_dates_are_day_counts(days: int | None, day: str | None) -> None:
    """Never milliseconds; MySQL's zero date in a NOT NULL column is 1970-01-01, a null stays null."""
    for by in (MYSQL, source()):
        assert decoded(days, "date", "date", by) == (None if day is None else date.fromisoformat(day))


def test_dbz03_units_come_from_the_declared_type() -> None:
    """One instant in milliseconds and in microseconds, told apart by precision, never by size."""
    moment = datetime(2024, 6, 20, 16, 13, 20)  # noqa: DTZ001 zone-less on purpose
    assert decoded(1718900000000, "timestamp", "timestamp(3)") == moment
    assert decoded(1718900000000000, "timestamp", "timestamp") == moment
    assert decoded(1718900000000, "timestamp", "datetime", MYSQL) == moment
    assert decoded(1718900000000000, "timestamp", "datetime(6)", MYSQL) == moment
    assert decoded(1718900000000000000, "timestamp", "datetime2", source("sqlserver")) == moment
    assert decoded(5, "timestamp", "timestamp") == datetime(1970, 1, 1, 0, 0, 0, 5)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("mode", "day", "of_day", "moment"),
    [
        ("adaptive", 20526, 65123000451, 1773511524250451),
        ("microseconds", 20526, 65123000451, 1773511524250451),
        ("nanoseconds", 20526, 65123000451999, 1773511524250451999),
        ("isostring", "2026-03-14Z", "18:05:23.000451Z", "2026-03-14T18:05:24.250451Z"),
    ],
)
def test_every_time_mode_gives_the_same_times(mode: str, day: object, of_day: object, moment: object) -> None:
    """Digits below a microsecond are cut, in numbers and in texts alike."""
    by = source(time_precision_mode=mode)
    assert decoded(day, "date", "date", by) == date(2026, 3, 14)
    assert decoded(of_day, "time", "time", by) == time(18, 5, 23, 451)
    assert decoded(moment, "timestamp", "timestamp", by) == datetime(2026, 3, 14, 18, 5, 24, 250451)  # noqa: DTZ001


def test_connect_mode_has_milliseconds_everywhere() -> None:
    """Precision is lost at the source; the unit is fixed."""
    by = source(time_precision_mode="connect")
    assert decoded(65123000, "time", "time(6)", by) == time(18, 5, 23)
    assert decoded(1773511524250, "timestamp", "timestamp(6)", by) == datetime(2026, 3, 14, 18, 5, 24, 250000)  # noqa: DTZ001


def test_mysql_times_are_microseconds_whatever_their_precision() -> None:
    """TIME may be negative or beyond a day: only a decimal of seconds holds that."""
    assert decoded(65123000000, "time", "time", MYSQL) == time(18, 5, 23)
    assert decoded(-3_600_000_000, "decimal(18,6)", "time", MYSQL) == Decimal(-3600)
    for wire in (-1, 86_400_000_000):
        assert refused(wire, "time", "time(6)", MYSQL) == "not a time of day"


@pytest.mark.usefixtures("worker_zone")
def test_dbz12_wall_clock_columns_do_not_shift() -> None:
    """DATETIME stands as written, TIMESTAMP is an instant, and both November tickets exist."""
    fired = decoded(1718909100000, "timestamp", "datetime(3)", MYSQL)
    assert fired == datetime(2024, 6, 20, 18, 45)  # noqa: DTZ001 zone-less on purpose
    bumped = decoded("2024-06-20T23:45:00Z", "timestamptz", "timestamp", MYSQL)
    assert bumped == datetime(2024, 6, 20, 23, 45, tzinfo=UTC)
    repeats = ["2024-11-03T06:30:00Z", "2024-11-03T07:30:00Z"]
    assert len({decoded(text, "timestamptz", "timestamp", MYSQL) for text in repeats}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-14T18:05:22.417Z",
        "2026-03-14T18:05:22.417000Z",
        "2026-03-14T14:05:22.4170000001-04:00",
        "2026-03-14T18:05:22.417",
    ],
)
def test_one_instant_has_many_spellings(text: str) -> None:
    """Any number of fraction digits, any offset: one value, aware and in UTC."""
    found = decoded(text, "timestamptz", "timestamptz")
    assert found == datetime(2026, 3, 14, 18, 5, 22, 417000, tzinfo=UTC)
    assert isinstance(found, datetime)
    assert found.tzinfo is UTC


INFINITE = [
    ("infinity", "timestamptz", "timestamptz"),
    ("-infinity", "timestamptz", "timestamptz"),
    (9223372036825200000, "timestamp", "timestamp"),
    (-9223372036832400000, "timestamp", "timestamp"),
    (9223372036825200, "timestamp", "timestamp(3)"),
    (2147472693, "date", "date"),
    (-2147472693, "date", "date"),
]


@pytest.mark.parametrize(("value", "target", "declared"), INFINITE)
def test_infinity_follows_the_sources_policy(value: object, target: str, declared: str) -> None:
    """No warehouse has infinity: null, or quarantined where the policy says so."""
    assert decoded(value, target, declared) is None
    assert refused(value, target, declared, source(infinity="quarantine")) == "infinity"


@pytest.mark.parametrize(
    ("value", "target", "declared"),
    [
        (4_000_000, "date", "date"),
        (-800_000, "date", "date"),
        ("+10000-01-01T00:00:00Z", "timestamptz", "timestamptz"),
        (300_000_000_000_000_000, "timestamp", "timestamp"),
        ("0000-00-00", "date", "date"),
        ("2026-02-30", "date", "date"),
        (True, "date", "date"),
        (Decimal("1.5"), "timestamp", "timestamp"),
        ("noon", "time", "time"),
    ],
)
def test_dates_that_do_not_exist_are_refused(value: object, target: str, declared: str) -> None:
    """Before the year 1, after 9999, or never: refused, not wrapped around."""
    assert refused(value, target, declared)


def test_oracle_dates_have_a_time_of_day() -> None:
    """A DATE of Oracle is a timestamp; as a date it must not lose its hours."""
    oracle = source("oracle")
    assert decoded(1773446400000, "date", "date", oracle) == date(2026, 3, 14)
    assert "time of day" in refused(1773446400001, "date", "date", oracle)
    assert decoded(1773446400001, "timestamptz", "date", oracle) == datetime(2026, 3, 14, 0, 0, 0, 1000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90000000, "90"),
        (-1, "-0.000001"),
        ("PT1M30S", "90"),
        ("P0Y0M1DT2H3M4.5S", "93784.5"),
        ("PT-0.5S", "-0.5"),
        ("P1Y", "31557600"),
    ],
)
def test_intervals_are_seconds(value: object, seconds: str) -> None:
    """Both interval modes, with Debezium's own average month."""
    assert decoded(value, "decimal(18,6)", "interval") == Decimal(seconds)


def test_logical_names_of_the_schema_set_the_unit() -> None:
    """A wrapper's schema wins over the precision in the catalogue."""
    moment = datetime(2024, 6, 20, 16, 13, 20)  # noqa: DTZ001 zone-less on purpose
    for name, ticks in (("Timestamp", 10**3), ("MicroTimestamp", 10**6), ("NanoTimestamp", 10**9)):
        logical = LogicalType("int64", f"io.debezium.time.{name}")
        assert decoded(1718900000 * ticks, "timestamp", "timestamp(3)", logical=logical) == moment


def test_the_mock_writes_iso_texts() -> None:
    """Dates, times and instants as anyone would write them."""
    mock = source("mock")
    assert decoded("2026-03-14", "date", by=mock) == date(2026, 3, 14)
    assert decoded("18:05:23.5", "time", by=mock) == time(18, 5, 23, 500000)
    assert decoded("2026-03-14T18:05:23", "timestamp", by=mock) == datetime(2026, 3, 14, 18, 5, 23)  # noqa: DTZ001
