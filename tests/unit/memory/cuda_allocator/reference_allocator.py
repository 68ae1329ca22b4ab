"""The same allocator, slow and plain, to hold ours against: chains are lists, and a search looks at everything."""

from trainauto.memory.cuda_allocator.allocator import AllocationEvent

MIB = 2**20
FREE, HOLE = -1, -2  # owners of spans; live ones are owned by their ident


class Span:
    def __init__(self, address: int, size: int, owner: int) -> None:
        self.address, self.size, self.owner = address, size, owner
        self.made = 0  # 0 until it is cut or its segment is new: then its place among all that were


class ReferenceAllocator:
    """``ties``: of equal spans the one at the lowest address, of the oldest segment, or (native only) the oldest."""

    def __init__(self, expandable: bool, limit: int | None, descending: bool = False, ties: str = "address") -> None:
        self.expandable, self.limit, self.descending, self.ties = expandable, limit, descending, ties
        self.times = 0
        self.pools: dict[str, list[list[Span]]] = {"small": [], "large": []}
        if expandable:
            self.pools = {name: [[Span(0, 2**50, HOLE)]] for name in self.pools}
        self.ends = {"small": 0, "large": 0}
        self.top = 2**50
        self.reserved = self.retries = 0
        self.requested: dict[int, int] = {}

    def do(self, event: AllocationEvent) -> bool:
        """Carry out an event; return False where memory ran out."""
        if not event.size_bytes:
            del self.requested[event.ident]
            freed = Span(0, 0, FREE)
            for chain in (chain for chains in self.pools.values() for chain in chains):
                for span in chain:
                    if span.owner == event.ident:
                        span.owner, freed = FREE, span
                self.merge(chain, freed.made if freed in chain else None)
            return True
        size = (event.size_bytes + 511) // 512 * 512
        name = "small" if size <= MIB else "large"
        found = self.best_fit(name, size) or self.grow(name, size)
        if found is None:
            self.retries += 1
            self.release()
            found = self.grow(name, size)
        if found is None:
            return False
        chain, span = found
        rest = span.size - size
        if rest >= 512 if name == "small" or self.expandable else rest > MIB:
            after = Span(span.address + size, rest, FREE)
            after.made = span.made
            chain.insert(chain.index(span) + 1, after)
            span.size = size
            if self.ties == "block":
                self.times += 1
                span.made = self.times
        span.owner = event.ident
        self.requested[event.ident] = event.size_bytes
        return True

    def best_fit(self, name: str, size: int) -> tuple[list[Span], Span] | None:
        fits = [(c, s) for c in self.pools[name] for s in c if s.owner == FREE and s.size >= size]
        fits.sort(key=lambda fit: (fit[1].size, fit[1].made if self.ties != "address" else 0, fit[1].address))

        def reach(fit: tuple[list[Span], Span]) -> int:
            chain, span = fit
            after = chain[chain.index(span) + 1 :][:1]
            return span.size + sum(s.size for s in after if s.owner == HOLE)

        while len(fits) > 1 and reach(fits[1]) < reach(fits[0]):
            fits.pop(0)
        return fits[0] if fits else None

    def grow(self, name: str, size: int) -> tuple[list[Span], Span] | None:
        if self.expandable:
            return self.expand(self.pools[name][0], 2 * MIB if name == "small" else 20 * MIB, size)
        segment = (
            2 * MIB if name == "small" else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // MIB // 2 * 2 * MIB
        )
        if self.limit is not None and self.reserved + segment > self.limit:
            return None
        self.reserved += segment
        if self.descending and segment >= 32 * MIB:
            self.top -= segment
            chain = [Span(self.top, segment, FREE)]
        else:
            chain = [Span(self.ends[name], segment, FREE)]
            self.ends[name] += segment
        self.times += 1
        chain[0].made = self.times
        self.pools[name].append(chain)
        return chain, chain[0]

    def expand(self, chain: list[Span], granule: int, size: int) -> tuple[list[Span], Span] | None:
        for first in range(len(chain)):
            run = []
            while first + len(run) < len(chain) and chain[first + len(run)].owner in (FREE, HOLE):
                run.append(chain[first + len(run)])
            # a cached span that no hole follows is no place to grow
            if sum(span.size for span in run) >= size and any(span.owner == HOLE for span in run[:2]):
                break
        address = run[0].address
        while (start := next(span for span in chain if span.address == address)).owner == HOLE or start.size < size:
            hole = start if start.owner == HOLE else chain[chain.index(start) + 1]
            missing = size if hole is start else size - start.size
            mapped = (min(missing, hole.size) + granule - 1) // granule * granule
            if self.limit is not None and self.reserved + mapped > self.limit:
                return None
            self.reserved += mapped
            if mapped < hole.size:
                chain.insert(chain.index(hole) + 1, Span(hole.address + mapped, hole.size - mapped, HOLE))
            hole.size, hole.owner = mapped, FREE
            self.merge(chain)
        return chain, start

    def release(self) -> None:
        for name, granule in (("small", 2 * MIB), ("large", 20 * MIB)):
            if not self.expandable:
                cached = [chain for chain in self.pools[name] if len(chain) == 1 and chain[0].owner == FREE]
                self.reserved -= sum(chain[0].size for chain in cached)
                self.pools[name] = [chain for chain in self.pools[name] if chain not in cached]
                continue
            chain = self.pools[name][0]
            pieces = []
            for span in chain:
                begin, end = span.address, span.address + span.size
                marks = [begin, -(-begin // granule) * granule, end // granule * granule, end]
                if span.owner != FREE or marks[1] >= marks[2]:
                    pieces.append(span)
                    continue
                self.reserved -= marks[2] - marks[1]
                owners = (FREE, HOLE, FREE)
                pieces += [Span(a, b - a, o) for a, b, o in zip(marks, marks[1:], owners, strict=False) if b > a]
            chain[:] = pieces
            self.merge(chain)

    @staticmethod
    def merge(chain: list[Span], freed: int | None = None) -> None:
        """Merge neighbours; what a span that was freed is part of counts as made when that one was."""
        for place in range(len(chain) - 1, 0, -1):
            left, right = chain[place - 1], chain[place]
            if left.owner == right.owner and left.owner in (FREE, HOLE):
                left.size += right.size
                left.made = left.made if freed is None else freed
                del chain[place]

    def segments(self) -> list[list[tuple[int, int]]]:
        """Size and requested bytes of every block, by segment."""
        found = []
        for chain in (*self.pools["small"], *self.pools["large"]):
            run: list[tuple[int, int]] = []
            for span in chain:
                if span.owner == HOLE and run:
                    found.append(run)
                    run = []
                elif span.owner != HOLE:
                    run.append((span.size, self.requested.get(span.owner, 0)))
            if run:
                found.append(run)
        return found
