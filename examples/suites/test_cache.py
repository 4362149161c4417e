"""A cache that forgets what was used longest ago."""

from collections import OrderedDict


class Cache:
    """Keeps the `size` entries used last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: OrderedDict[str, int] = OrderedDict()

    def get(self, key: str) -> int | None:
        """The entry, which is now the one used last."""
        if key in self.entries:
            self.entries.move_to_end(key)
        return self.entries.get(key)

    def put(self, key: str, value: int) -> None:
        """Keep an entry, and forget another if there are too many."""
        self.entries[key] = value
        self.entries.move_to_end(key)
        if len(self.entries) > self.size:
            self.entries.popitem(last=False)


def test_the_oldest_goes_first() -> None:
    cache = Cache(2)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert list(cache.entries) == ["b", "c"]


def test_looking_keeps_an_entry() -> None:
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.get("b") is None


def test_it_never_grows_beyond_its_size() -> None:
    cache = Cache(10)
    for number in range(1_000):
        cache.put(str(number % 37), number)
        assert len(cache.entries) <= 10
