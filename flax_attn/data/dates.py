"""Dates as people write them, and as ISO 8601 does: made in code, so every answer is known."""

import datetime
import re

import numpy as np

from flax_attn.data.pairs import Pair

FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
MONTHS = """
january february march april may june july august september october november december
""".split()  # noqa: SIM905
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
FORMS = (
    "{day} {month} {year}",
    "{day} {short} {year}",
    "{ordinal} of {month} {year}",
    "{month} {day}, {year}",
    "{short} {ordinal}, {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday} {month} {ordinal} {year}",
    "{year}, {month} {day}",
)


def generate(seed: int, num_examples: int) -> list[Pair]:
    """Draws dates from 1950 to 2049: `tuesday, 11 july 2006` becomes `2006-07-11`.

    Months have names, some of three letters.
    """
    rng = np.random.default_rng(seed)
    days = rng.integers((LAST - FIRST).days + 1, size=num_examples)
    dates = [FIRST + datetime.timedelta(int(day)) for day in days]
    forms = [FORMS[form] for form in rng.integers(len(FORMS), size=num_examples)]
    return [Pair(write(date, form), date.isoformat()) for date, form in zip(dates, forms)]


def write(date: datetime.date, form: str) -> str:
    """Writes a date in one of the `FORMS`."""
    month = MONTHS[date.month - 1]
    return form.format(
        day=date.day,
        ordinal=ordinal(date.day),
        month=month,
        short=month[:3],
        year=date.year,
        weekday=DAYS[date.weekday()],
    )


def place_of_month(text: str) -> slice:
    """Finds the name of the month in a date that `write` wrote."""
    month = re.search("|".join(rf"\b{name}\b|\b{name[:3]}\b" for name in MONTHS), text)
    assert month is not None, f"no month in {text!r}"
    return slice(*month.span())


def ordinal(number: int) -> str:
    """Returns `1st`, `2nd`, `3rd`, `4th`, ..."""
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
