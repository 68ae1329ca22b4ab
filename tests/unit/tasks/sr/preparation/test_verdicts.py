"""Which tiles are kept: every pair compared, the best copy preferred."""

import random

from hypothesis import given
from hypothesis import strategies as st

from trainauto.tasks.sr.preparation.journal import Entry
from trainauto.tasks.sr.preparation.verdicts import BLOCKY, DUPLICATE, LOW_DETAIL, Thresholds, looks_like, verdicts


def compared_one_by_one(hashes: list[int], most_bits: int) -> list[int | None]:
    likes: list[int | None] = []
    for number, value in enumerate(hashes):
        staying = [other for other in range(number) if likes[other] is None]
        near = [other for other in staying if bin(hashes[other] ^ value).count("1") <= most_bits]
        likes.append(near[0] if near else None)
    return likes


@given(st.integers(0, 32), st.integers(0, 10**6), st.integers(0, 30))
def test_all_that_are_near_are_found(most_bits: int, seed: int, count: int) -> None:
    rng = random.Random(seed)
    hashes = [rng.getrandbits(64) for _ in range(4)]
    for _ in range(count):
        value = rng.choice(hashes)
        for bit in rng.sample(range(64), rng.randint(0, min(64, 2 * most_bits + 1))):
            value ^= 1 << bit
        hashes.append(value)
    assert looks_like(hashes, most_bits) == compared_one_by_one(hashes, most_bits)


def entry(name: str, side_px: int = 100, size_bytes: int = 10, value: int = 0, bits: int = 8, **facts: object) -> Entry:
    measures = {"tiles": [(5.0, 1.0)], "hash": f"{value:016x}", **facts}
    return Entry(name, f"/{name}", size_bytes, 0, side_px, side_px, bits, **measures)  # type: ignore[arg-type]


def of(*entries: Entry, **thresholds: object) -> dict[str, tuple[list[int], dict[str, object], str]]:
    found = verdicts({one.name: one for one in entries}, Thresholds(**thresholds))  # type: ignore[arg-type]
    return {name: (list(one.kept), dict(one.dropped), one.like) for name, one in found.items()}


def test_the_largest_copy_stays_then_the_deepest_then_the_largest_file() -> None:
    copies = entry("a", 50), entry("b", size_bytes=9), entry("c", size_bytes=11), entry("d", bits=16, size_bytes=1)
    found = of(*copies, entry("other", value=2**64 - 1), duplicates=4)
    assert [name for name, verdict in found.items() if verdict[0]] == ["d", "other"]
    assert found["a"] == ([], {DUPLICATE: [1]}, "d")
    assert all(verdict[0] for verdict in of(*copies).values()), "without a threshold all stay"


def test_tiles_are_dropped_by_measure_and_a_spoilt_copy_hides_no_other() -> None:
    tiles = [(0.2, 9.0), (1.0, 1.4), (1.0, 1.3), (0.5, 1.0)]
    found = of(entry("a", tiles=tiles), detail=0.5, blockiness=1.3)
    assert found["a"] == ([3, 4], {LOW_DETAIL: [1], BLOCKY: [2]}, "")
    blocky, clean = entry("big", 200, tiles=[(1.0, 2.0)]), entry("small", 100)
    assert of(blocky, clean, duplicates=4, blockiness=1.3)["small"][0] == [1]


def test_damaged_images_have_no_verdict() -> None:
    assert of(entry("a", damage="ends too early"), entry("b"), duplicates=4).keys() == {"b"}
