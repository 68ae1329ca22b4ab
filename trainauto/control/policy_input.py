"""What every policy decides by: a period under one plan, and what bounds the answer."""

from dataclasses import dataclass

from trainauto.core.plan import Axis, Plan, count_axis, size_axis, work

NO_VALUES = range(1, 2)


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """A whole period under one plan, or what is known before the first one.

    Attributes:
        plan: the plan of the period.
        peak_bytes: its largest peak; ``None`` while nothing was measured, and there are only predictions.
        typical_bytes: its typical peak: a spike is not what the plan needs.
        limit_bytes: bytes this process may use.
        target: share of the limit that peaks are steered to.
        margin: width of the band below target that is left alone.
        axes: bounds and multiples, in the order in which they grow.
        configured_batch: the batch of the option file.
        blocked: plans that ran out of memory; nothing as large as one of them is tried again.
        may_grow: whether growth is allowed at all now.
        reserved_bytes: what the allocator typically held; ``None`` if unknown.
        available_bytes: the least it could have held: free memory and own reserved memory, less headroom; ``None``
            if unbounded.
        flushes: most steps continued only after the allocator had given back what it kept, which takes their time.
        units_per_s: how fast the plan was, in units of work (pixels, tokens); ``None`` before a whole period.
        probes_left: of a plan that was measured without being trained: how many more may be; ``None`` elsewhere.
    """

    plan: Plan
    limit_bytes: int
    target: float
    margin: float
    axes: tuple[Axis, ...]
    configured_batch: int
    peak_bytes: int | None = None
    typical_bytes: int | None = None
    blocked: tuple[Plan, ...] = ()
    may_grow: bool = True
    reserved_bytes: int | None = None
    available_bytes: int | None = None
    flushes: bool = False
    units_per_s: float | None = None
    probes_left: int | None = None

    @property
    def target_bytes(self) -> int:
        """Bytes that a peak may reach."""
        return int(self.target * self.limit_bytes)

    @property
    def is_probe(self) -> bool:
        """Whether the next plan will be measured before it is trained, so that it may be the one that just fits."""
        return bool(self.probes_left)

    def work(self, plan: Plan) -> int:
        """Return what activations grow with under a plan."""
        return work(plan, self.axes)

    @property
    def batch_sizes(self) -> range:
        """Admissible batches; 1 where no axis counts samples."""
        axis = count_axis(self.axes)
        return axis.values if axis else NO_VALUES

    @property
    def sizes(self) -> range:
        """Admissible sizes; 1 where no axis is one."""
        axis = size_axis(self.axes)
        return axis.values if axis else NO_VALUES
