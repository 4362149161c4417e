"""Sieving and testing primes."""


def sieve(limit: int) -> list[int]:
    """All primes below `limit`."""
    is_prime = bytearray([1]) * limit
    is_prime[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return [number for number, prime in enumerate(is_prime) if prime]


def test_the_first_primes() -> None:
    assert sieve(30) == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_how_many_there_are() -> None:
    assert len(sieve(1_000_000)) == 78_498


def test_each_is_divided_by_none_before() -> None:
    primes = sieve(2_000)
    assert all(b % a for place, b in enumerate(primes) for a in primes[:place])
