"""SimpleDateFormat: patterns, lenient reading, the old calendar."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.java_text.dates import SimpleDateFormat, civil_from_days, days_from_civil
from penstock.base.java_text.texts import JavaTextError

MOMENTS = st.integers(-12_212_553_600_000, 253_402_214_400_000)  # from 1583 to 9999, in milliseconds


@given(MOMENTS)
def test_what_is_written_is_read_again(ms):
    for pattern in ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "yyyyMMddHHmmssSSS", "EEEE d MMMM yyyy, hh:mm:ss.SSS a z"):
        form = SimpleDateFormat(pattern)
        assert form.parse(form.format(ms)) == ms


@given(st.integers(-800_000, 3_000_000))
def test_days_are_numbered_without_gaps(days):
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    if -141_427 <= days < 2_932_897:  # what Python can name
        assert date(1970, 1, 1).toordinal() + days == date(year, month, day).toordinal()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd", "2024-02-30", "2024-03-01"),  # fields run over
        ("yyyy-MM-dd", "2024-1-5 and more", "2024-01-05"),  # what follows is not looked at
        ("yyyy-MM-dd HH", "2024-01-01 49", "2024-01-03"),
        ("yyyy DDD", "2024 060", "2024-02-29"),
        ("YYYY-'W'ww-u", "2024-W01-1", "2024-01-01"),
        ("MMM yyyy", "DECEMBER 2023", "2023-12-01"),
        ("y-M-d", "-1-1-1", "-001-01-01"),
    ],
)
def test_lenient_reading(pattern, text, expected):
    year, month, day = civil_from_days(SimpleDateFormat(pattern).parse(text) // 86_400_000)
    assert f"{year:04}-{month:02}-{day:02}" == expected


def test_two_digits_of_a_year_lie_within_eighty_years_back_and_twenty_on():
    this_year = datetime.now(UTC).year
    form = SimpleDateFormat("yy")
    near = civil_from_days(form.parse(f"{(this_year + 10) % 100:02}") // 86_400_000)[0]
    far = civil_from_days(form.parse(f"{(this_year + 30) % 100:02}") // 86_400_000)[0]
    assert (near, far) == (this_year + 10, this_year - 70)


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd'T", "b", "XXXX"])
def test_patterns_that_java_refuses(pattern):
    with pytest.raises(JavaTextError):
        SimpleDateFormat(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"), [("yyyy", ""), ("yyyy", "x"), ("MMM", "Foo"), ("HH:mm", "12"), ("X", "+1")]
)
def test_texts_that_do_not_match(pattern, text):
    with pytest.raises(JavaTextError, match="Unparseable date"):
        SimpleDateFormat(pattern).parse(text)
