"""Networks. Importing this package registers them all; :mod:`.registry` says what each promises."""

from trainauto.tasks.sr.archs.artcnn_arch import ArtCNN
from trainauto.tasks.sr.archs.cascadedgaze_arch import CascadedGaze
from trainauto.tasks.sr.archs.compact_arch import SRVGGNetCompact
from trainauto.tasks.sr.archs.dis_arch import DIS
from trainauto.tasks.sr.archs.dunet_arch import DUnet
from trainauto.tasks.sr.archs.dwt_arch import DWT
from trainauto.tasks.sr.archs.ecbsr_arch import ECBSR
from trainauto.tasks.sr.archs.edsr_arch import EDSR
from trainauto.tasks.sr.archs.eimn_arch import EIMN
from trainauto.tasks.sr.archs.elan_arch import ELAN
from trainauto.tasks.sr.archs.emt_arch import EMT
from trainauto.tasks.sr.archs.esc_arch import ESC
from trainauto.tasks.sr.archs.escreal_arch import ESCRealM
from trainauto.tasks.sr.archs.flexnet_arch import FlexNet
from trainauto.tasks.sr.archs.gaterv3_arch import GateRV3
from trainauto.tasks.sr.archs.hit_arch import HiTSIR, HiTSNG, HiTSRF
from trainauto.tasks.sr.archs.legacy_keys import modern_keys
from trainauto.tasks.sr.archs.lkfmixer_arch import LKFMixer
from trainauto.tasks.sr.archs.lmlt_arch import LMLT
from trainauto.tasks.sr.archs.man_arch import MAN
from trainauto.tasks.sr.archs.metagan_arch import MetaGAN
from trainauto.tasks.sr.archs.mosrv2_arch import MoSRv2
from trainauto.tasks.sr.archs.msrresnet_arch import MSRResNet
from trainauto.tasks.sr.archs.patchgan_arch import (
    MultiscalePatchGANDiscriminatorSN,
    PatchGAN,
    PatchGANDiscriminatorSN,
)
from trainauto.tasks.sr.archs.registry import ARCHS, is_discriminator
from trainauto.tasks.sr.archs.rrdbnet_arch import RRDBNet
from trainauto.tasks.sr.archs.rtmosr_arch import RTMoSR
from trainauto.tasks.sr.archs.scunet_aaf6aa_arch import SCUNetAaf6aa
from trainauto.tasks.sr.archs.sebica_arch import Sebica
from trainauto.tasks.sr.archs.span_arch import SPAN
from trainauto.tasks.sr.archs.spanplus_arch import SPANPlus
from trainauto.tasks.sr.archs.swinir_arch import SwinIR
from trainauto.tasks.sr.archs.unet_discriminator_arch import UNetDiscriminatorSN
from trainauto.tasks.sr.archs.vgg_discriminator_arch import VGGStyleDiscriminator

__all__ = [
    "ARCHS",
    "DIS",
    "DWT",
    "ECBSR",
    "EDSR",
    "EIMN",
    "ELAN",
    "EMT",
    "ESC",
    "LMLT",
    "MAN",
    "SPAN",
    "ArtCNN",
    "CascadedGaze",
    "DUnet",
    "ESCRealM",
    "FlexNet",
    "GateRV3",
    "HiTSIR",
    "HiTSNG",
    "HiTSRF",
    "LKFMixer",
    "MSRResNet",
    "MetaGAN",
    "MoSRv2",
    "MultiscalePatchGANDiscriminatorSN",
    "PatchGAN",
    "PatchGANDiscriminatorSN",
    "RRDBNet",
    "RTMoSR",
    "SCUNetAaf6aa",
    "SPANPlus",
    "SRVGGNetCompact",
    "Sebica",
    "SwinIR",
    "UNetDiscriminatorSN",
    "VGGStyleDiscriminator",
    "is_discriminator",
    "modern_keys",
]
