"""Degradations that are fine key by key and impossible together."""

from collections.abc import Iterator

from trainauto.options.degradation_options import WEIGHTED, DegradationOptions, KernelOptions
from trainauto.options.schema import Options
from trainauto.options.source_locations import KeyPath
from trainauto.options.validation_errors import Finding

PIPELINES = ("realesrgandataset", "realesrganpaireddataset")
FILES_ALONE = ("gtimagedataset", "singlegtdataset", "pairedimagedataset")
KEYS = tuple(DegradationOptions.model_fields)


def written_keys(options: Options) -> Iterator[KeyPath]:
    """Yield the paths of the keys about degradations that the file writes."""
    off = {key for key in KEYS if getattr(options, key) in (False, DegradationOptions.model_fields[key].default)}
    yield from ((key,) for key in KEYS if key in options.model_fields_set - off)
    if "train" in options.datasets.model_fields_set:
        train = options.datasets.train
        yield from (("datasets", "train", key) for key in KernelOptions.model_fields if key in train.model_fields_set)


def degradations_are_made(options: Options) -> Iterator[Finding]:
    """Keys about degradations mean nothing to sets that read or shrink images alone."""
    if "train" not in options.datasets.model_fields_set:
        return
    train = options.datasets.train
    if train.type.lower() in FILES_ALONE:
        for path in written_keys(options):
            message = f"{path[-1]} is about low-quality images that are made at random, and {train.type} makes none"
            yield Finding(path, message, "Write type: RealESRGANDataset in datasets.train, or remove it.", at_key=True)
            return  # one is enough: the others follow from the same type
    if train.type.lower() in PIPELINES and not options.high_order_degradation:
        message = f"without high_order_degradation a {train.type} would make no low-quality images"
        yield Finding(("high_order_degradation",), message, "Write true, or type: GTImageDataset.")


def weights_fit_their_lists(options: Options) -> Iterator[Finding]:
    """Each weight belongs to one entry of a list."""
    sections = [((), options)]
    if "train" in options.model_fields_set:
        sections.append((("train",), options.train))  # type: ignore[arg-type]
    if "train" in options.datasets.model_fields_set:
        sections.append((("datasets", "train"), options.datasets.train))  # type: ignore[arg-type]
    for base, section in sections:
        for key, of in WEIGHTED.items():
            weights, names = getattr(section, key, None), getattr(section, of, None)
            if weights is not None and names is None:
                yield Finding(
                    (*base, key), f"{key} weighs the entries of {of}, which is not written", f"Write {of} too."
                )
            elif weights is not None and names is not None and len(weights) != len(names):
                message = f"{key} has {len(weights)} weights, and {of} has {len(names)} entries"
                blamed = key if key in section.model_fields_set else of
                yield Finding((*base, blamed), message, f"Write one weight in {key} for each entry of {of}.")


def one_way_of_augmenting(options: Options) -> Iterator[Finding]:
    """use_moa is traiNNer-redux's key, augmentation neosr's; one of them says what is drawn."""
    if "train" not in options.datasets.model_fields_set:
        return
    train = options.datasets.train
    if train.augmentation is not None and train.aug_prob is None:
        message = "augmentation says what is drawn, and aug_prob, how often, is not written"
        yield Finding(("datasets", "train", "augmentation"), message, "Write aug_prob too.", at_key=True)
    if train.augmentation is not None and "train" in options.model_fields_set and options.train.use_moa:
        message = "train.use_moa and augmentation are two names of one thing"
        yield Finding(("datasets", "train", "augmentation"), message, "Remove one of them.", at_key=True)


def one_share_of_pairs(options: Options) -> Iterator[Finding]:
    """The share of pairs stands in one place, and there are pairs."""
    if options.dataroot_lq_prob is None or "train" not in options.datasets.model_fields_set:
        return
    train = options.datasets.train
    if train.dataroot_lq_prob is not None:
        message = "dataroot_lq_prob is written at the top level and in datasets.train"
        yield Finding(("dataroot_lq_prob",), message, "Remove one of them.", at_key=True)
    elif train.type.lower() == "realesrgandataset" and options.dataroot_lq_prob:
        message = f"dataroot_lq_prob says how often a sample is a pair of files, and a {train.type} has none"
        yield Finding(("dataroot_lq_prob",), message, "Write type: RealESRGANPairedDataset, or remove it.", at_key=True)


def one_way_of_sharpening(options: Options) -> Iterator[Finding]:
    """lq_usm sharpens what is degraded and leaves targets alone; the other keys decide about both."""
    others = [key for key in ("gt_usm", "l1_gt_usm", "percep_gt_usm", "gan_gt_usm") if getattr(options, key)]
    if options.lq_usm and others:
        message = f"lq_usm is traiNNer-redux's sharpening of what is degraded, and {others[0]} BasicSR's"
        yield Finding(("lq_usm",), message, "Remove one of them.", at_key=True)
    kinds = [key for key in ("l1_gt_usm", "percep_gt_usm", "gan_gt_usm") if getattr(options, key) is not None]
    if options.gt_usm and kinds:
        message = f"gt_usm sharpens the target of all losses, and {kinds[0]} decides about those of one kind"
        yield Finding((kinds[0],), message, "Remove one of them.", at_key=True)
    if options.second_blur_prob is not None and options.blur_prob2 is not None:
        message = "second_blur_prob and blur_prob2 are two names of one thing"
        yield Finding(("second_blur_prob",), message, "Remove one.", at_key=True)
