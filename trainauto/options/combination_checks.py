"""Options of super-resolution that are fine alone and impossible together, each one small pure check."""

from collections.abc import Iterator

from trainauto.core.words import counted
from trainauto.options.checks import CombinationChecks, averages_there_are, names_differ, step_is_no_flood, warmup_ends
from trainauto.options.degradation_checks import (
    KEYS,
    PIPELINES,
    degradations_are_made,
    one_share_of_pairs,
    one_way_of_augmenting,
    one_way_of_sharpening,
    weights_fit_their_lists,
)
from trainauto.options.run_checks import not_beside
from trainauto.options.schema import Datasets, Options, TrainDataset, ValDataset
from trainauto.options.source_locations import KeyPath
from trainauto.options.validation_errors import Finding

_CHECKS = CombinationChecks(Options)
_reads = _CHECKS.reads
impossible_combinations = _CHECKS.findings


def image_sets(datasets: Datasets) -> Iterator[tuple[KeyPath, TrainDataset | ValDataset]]:
    """Iterate over all data sets with their paths in the file, the training set first; a test has none."""
    if "train" in datasets.model_fields_set:
        yield ("datasets", "train"), datasets.train
    for key, dataset in datasets.validation_sets.items():
        yield ("datasets", key), dataset


@_reads("train")
def one_length(options: Options) -> Iterator[Finding]:
    """A run has one length, in one unit."""
    train = options.train
    if train.total_iter and train.total_samples:
        message = "the run has two lengths, total_iter and total_samples"
        yield Finding(
            ("train", "total_samples"), message, "Remove one: stop and schedules follow the other.", at_key=True
        )
    if not train.total_iter and not train.total_samples:
        message = "the run has no length"
        yield Finding(("train",), message, "Add total_iter (optimizer steps) or total_samples to train.", at_key=True)


@_reads("datasets")
def one_step_of_samples(options: Options) -> Iterator[Finding]:
    """The number of samples of a step is bounded."""
    if "train" in options.datasets.model_fields_set:
        drawn = options.datasets.train
        yield from step_is_no_flood(drawn.batch_size_per_gpu, drawn.accum_iter, ("datasets", "train", "accum_iter"))


@_reads("train")
def averages_begin_somewhere(options: Options) -> Iterator[Finding]:
    """How an average begins is said of one that there is."""
    train = options.train
    optimizers = {"optim_g": train.optim_g, "optim_d": train.optim_d}
    yield from averages_there_are(train, train.ema_decay, train.optim_g, optimizers)


@_reads("train")
def one_warmup(options: Options) -> Iterator[Finding]:
    """Warm-up is given once, in the unit of the run, and ends before the run does."""
    train = options.train
    yield from warmup_ends(train, counts_samples=bool(train.total_samples and not train.total_iter))


@_reads("train")
def something_to_minimise(options: Options) -> Iterator[Finding]:
    """Losses that all weigh nothing leave the weights where they are, step after step."""
    weights = [loss.arguments.get("loss_weight") for loss in options.train.losses]
    if weights and all(weight == 0 for weight in weights):
        message = "nothing would be learned: every loss has loss_weight 0"
        yield Finding(("train", "losses", 0, "loss_weight"), message, "Write a weight above 0, or leave it out for 1.")


@_reads("train")
def something_counts_in_every_step(options: Options) -> Iterator[Finding]:
    """Schedules of losses leave no step in which all of them weigh nothing."""
    train = options.train
    counting = [loss.weight_schedule for loss in train.losses if loss.arguments.get("loss_weight") != 0]
    spans = [(one.start_iter + 1, one.end_iter) if one is not None else (1, None) for one in counting]
    for step in sorted({1, *(end + 1 for _, end in spans if end is not None)}):
        is_beyond = train.total_iter is not None and step > train.total_iter
        if spans and not is_beyond and not any(begin <= step and (end is None or step <= end) for begin, end in spans):
            position = next(place for place, loss in enumerate(train.losses) if loss.weight_schedule is not None)
            message = f"nothing would be learned in step {step}: no loss counts there"
            advice = "Have one loss count in each step of the run."
            yield Finding(("train", "losses", position, "weight_schedule"), message, advice, at_key=True)
            return


@_reads("distributed", "use_channels_last", "use_compile", "model_type")
def ranks_that_meet_in_the_backward_pass(options: Options) -> Iterator[Finding]:
    """Some networks cannot be wrapped or sharded for it."""
    chosen = options.distributed
    has_two_networks = options.model_type.lower() in ("srganmodel", "esrganmodel")
    refused = {
        f"model_type: {options.model_type}": (chosen.ddp_overlap or chosen.fully_shard) and has_two_networks,
        "use_channels_last": chosen.fully_shard and options.use_channels_last,
        "use_compile": chosen.fully_shard and options.use_compile,
    }
    yield from not_beside(chosen, refused)


@_reads("datasets")
def workers_within_lookahead(options: Options) -> Iterator[Finding]:
    """More workers than batches drawn ahead would idle."""
    train = next(
        (image_set for _, image_set in image_sets(options.datasets) if isinstance(image_set, TrainDataset)), None
    )
    if train is not None and train.num_worker_per_gpu > train.lookahead:
        ahead = counted(train.lookahead, "batch")
        message = f"{train.num_worker_per_gpu} workers cannot all be busy with {ahead} drawn ahead"
        advice = f"Write lookahead: {train.num_worker_per_gpu}, or fewer workers."
        yield Finding(("datasets", "train", "num_worker_per_gpu"), message, advice)


@_reads("input_pixel_format", "output_pixel_format")
def one_pixel_format(options: Options) -> Iterator[Finding]:
    """Networks make images of the kind that they are given."""
    if options.input_pixel_format != options.output_pixel_format:
        message = f"the input is {options.input_pixel_format} and the output {options.output_pixel_format}"
        yield Finding(("output_pixel_format",), message, "Write the same for both.")


@_reads("datasets", "input_pixel_format")
def one_format_of_pixels(options: Options) -> Iterator[Finding]:
    """Validation compares what training learns."""
    formats = {path: (one.color or options.input_pixel_format) for path, one in image_sets(options.datasets)}
    if len(set(formats.values())) > 1:
        path = next(path for path, color in formats.items() if color == "y")
        yield Finding((*path, "color"), "one set is read as y and another is not", "Write the same for all.")


@_reads("datasets")
def roots_fit_type(options: Options) -> Iterator[Finding]:
    """Paired sets need both roots, GT sets only one, and roots name something."""
    for path, dataset in image_sets(options.datasets):
        kind = dataset.type.lower()
        if kind in ("pairedimagedataset", "realesrganpaireddataset") and dataset.dataroot_lq is None:
            advice = "Add dataroot_lq, or write type: GTImageDataset to make lq images from gt."
            yield Finding(path, f"{dataset.type} needs dataroot_lq", advice, at_key=True)
        if kind in ("gtimagedataset", "singlegtdataset", "realesrgandataset") and dataset.dataroot_lq is not None:
            advice = "Remove dataroot_lq, or write type: PairedImageDataset."
            message = f"{dataset.type} makes lq images itself and takes no dataroot_lq"
            yield Finding((*path, "dataroot_lq"), message, advice, at_key=True)
        if kind in (*PIPELINES, "pairedimagedataset") and dataset.lq_resize_mode is not None:
            message = f"{dataset.type} shrinks no images and takes no lq_resize_mode"
            yield Finding((*path, "lq_resize_mode"), message, "Remove it, or write type: GTImageDataset.", at_key=True)
        if dataset.dataroot_lq is not None and dataset.dataroot_lq == dataset.dataroot_gt:
            message = "dataroot_lq is the same as dataroot_gt"
            yield Finding((*path, "dataroot_lq"), message, "Name the folder of low-quality images.")
        for key, roots in (("dataroot_gt", dataset.dataroot_gt), ("dataroot_lq", dataset.dataroot_lq)):
            names = [roots] if isinstance(roots, str) else roots
            if names is not None and not (names and all(names)):
                yield Finding((*path, key), f"{key} names nothing", "Write the path of a folder.", at_key=True)


@_reads("datasets", "scale")
def something_to_learn(options: Options) -> Iterator[Finding]:
    """A GT set at scale 1 has nothing to teach: its lq images are its gt images."""
    for path, dataset in image_sets(options.datasets):
        if dataset.type.lower() == "gtimagedataset" and options.scale == 1:
            message = "GTImageDataset makes lq images by downscaling, and at scale 1 they equal the gt images"
            yield Finding(
                path, message, "Write another scale, or use PairedImageDataset with dataroot_lq.", at_key=True
            )


@_reads("datasets")
def sets_differ(options: Options) -> Iterator[Finding]:
    """Names of sets become names of curves, folders and figures about their images."""
    yield from names_differ(image_sets(options.datasets))


@_reads("val", "logger")
def best_metric_is_measured(options: Options) -> Iterator[Finding]:
    """The metric that picks the best checkpoint must be measured."""
    best, metrics = options.logger.best_metric, list(options.val.metrics)
    path = ("logger", "best_metric")
    if best is not None and best not in metrics:
        advice = f"Known: {', '.join(metrics)}." if metrics else "Add it to val.metrics, or remove best_metric."
        yield Finding(path, f"best_metric '{best}' is not among val.metrics", advice)
    elif best is not None and not options.val.val_enabled:
        advice = "Write val_enabled: true, or remove best_metric."
        yield Finding(path, f"best_metric '{best}' is never measured, since val_enabled is false", advice)


@_reads("datasets", "val")
def validation_has_images(options: Options) -> Iterator[Finding]:
    """Validation that was asked for needs images."""
    is_requested = options.val.val_enabled and bool(options.val.model_fields_set)
    if is_requested and not options.datasets.validation_sets:
        advice = "Add datasets.val, or write val_enabled: false."
        path = ("val", "metrics") if options.val.metrics else ("val",)
        yield Finding(path, "there are validation options, and no validation set", advice, at_key=True)


@_reads("datasets", "val")
def validation_has_results(options: Options) -> Iterator[Finding]:
    """Validation must leave something: figures or pictures."""
    val = options.val
    if val.val_enabled and options.datasets.validation_sets and not val.metrics and not val.save_img:
        message = "validation would leave nothing: no metrics, and save_img is false"
        yield Finding(("val", "save_img"), message, "Add val.metrics, write save_img: true, or val_enabled: false.")


@_reads("val")
def tiles_outweigh_overlap(options: Options) -> Iterator[Finding]:
    """A tile must be larger than its margins, or most of the work is thrown away.

    A tile of side t computes (t + 2 overlap)^2 pixels for t^2 that are kept; from 2 overlap = t on, 3/4 are lost.
    """
    val = options.val
    if val.tile_size and 2 * val.tile_overlap >= val.tile_size:
        message = f"tiles of {val.tile_size} px with {val.tile_overlap} px of overlap on every side are mostly overlap"
        advice = f"Write tile_size above {2 * val.tile_overlap}, or a smaller tile_overlap (16 by default)."
        path = ("val", "tile_overlap" if "tile_overlap" in val.model_fields_set else "tile_size")
        yield Finding(path, message, advice)


@_reads("path")
def keys_only_inside_pickles(options: Options) -> Iterator[Finding]:
    """A safetensors file holds one set of weights, without keys to choose from."""
    path = options.path
    for which, weights, key in (
        ("g", path.pretrain_network_g, path.param_key_g),
        ("d", path.pretrain_network_d, path.param_key_d),
    ):
        if weights and key and weights.lower().endswith(".safetensors"):
            message = f"param_key_{which} chooses inside a .pth, and the weights are a .safetensors"
            yield Finding(("path", f"param_key_{which}"), message, f"Remove param_key_{which}.", at_key=True)


for _check in (degradations_are_made, one_share_of_pairs, one_way_of_sharpening):
    _reads("datasets", *KEYS)(_check)
for _check in (one_way_of_augmenting, weights_fit_their_lists):
    _reads("datasets", "train", *KEYS)(_check)
