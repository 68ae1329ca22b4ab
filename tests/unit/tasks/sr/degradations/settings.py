"""Settings to test with: all steps of BasicSR's ranges."""

from dataclasses import replace

from trainauto.tasks.sr.degradations import BlurSettings, DegradationSettings, StageSettings
from trainauto.tasks.sr.degradations.kernels import KINDS

BLUR = BlurSettings(
    kinds=dict(zip(KINDS, (0.45, 0.25, 0.12, 0.03, 0.12, 0.03), strict=True)),
    sizes_px=(7, 21),
    sinc_prob=0.1,
    sigma_px=(0.2, 3),
    beta_generalized=(0.5, 4),
    beta_plateau=(1, 2),
)
STAGE = StageSettings(
    blur_prob=1.0,
    blur=BLUR,
    resize_weights=(0.2, 0.7, 0.1),
    resize_range=(0.15, 1.5),
    resize_modes={"area": 1, "bilinear-aliased": 1, "bicubic-aliased": 1},
    gaussian_prob=0.5,
    noise_range=(1, 30),
    poisson_scale_range=(0.05, 3),
    gray_prob=0.4,
    compression_prob=1.0,
    codecs={"jpeg": 1},
    quality={"jpeg": (30, 95)},
)
SETTINGS = DegradationSettings(
    first=STAGE,
    second=replace(STAGE, blur_prob=0.8, resize_weights=(0.3, 0.4, 0.3), resize_range=(0.3, 1.2)),
    final_modes=STAGE.resize_modes,
    final_sinc_prob=0.8,
    final_sizes_px=(7, 21),
    thick_lines_prob=0.0,
)
