"""Roman numerals there and back."""

import pytest

SYMBOLS = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL"} | {
    10: "X",
    9: "IX",
    5: "V",
    4: "IV",
    1: "I",
}


def to_roman(number: int) -> str:
    """The numeral of a number from 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"no numeral for {number}")
    numeral = ""
    for value, symbol in SYMBOLS.items():
        count, number = divmod(number, value)
        numeral += symbol * count
    return numeral


def from_roman(numeral: str) -> int:
    """The number of a well-formed numeral."""
    values = [{symbol: value for value, symbol in SYMBOLS.items()}[letter] for letter in numeral]
    return sum(-v if v < max(values[place:]) else v for place, v in enumerate(values))


@pytest.mark.parametrize(("number", "numeral"), [(1, "I"), (4, "IV"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX")])
def test_known_numerals(number: int, numeral: str) -> None:
    assert to_roman(number) == numeral


def test_every_number_comes_back() -> None:
    assert all(from_roman(to_roman(number)) == number for number in range(1, 4000))


@pytest.mark.parametrize("number", [0, -1, 4000])
def test_numbers_without_a_numeral(number: int) -> None:
    with pytest.raises(ValueError, match="no numeral"):
        to_roman(number)
