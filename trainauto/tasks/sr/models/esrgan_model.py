"""Super-resolution against a discriminator that compares real and made images with each other."""

from typing import ClassVar

import torch
from torch import Tensor

from trainauto.core.objectives import LossTerms, MicroBatch
from trainauto.models.registry import MODELS
from trainauto.tasks.sr.models.srgan_model import SRGANModel


@MODELS.register("ESRGANModel")
class ESRGANModel(SRGANModel):
    """BasicSR's relativistic average GAN: a judgement counts by how far it is from the mean of the other kind.

    The discriminator learns that real images look more real than made ones do on average, the generator the reverse;
    each of the two halves weighs a half. The means are over all samples of a forward pass, which couples them: batches
    run whole, or in the ``accum_iter`` parts that the option file asks for, each with means of its own.

    Arguments, terms and errors are those of :class:`SRGANModel`.

    References:
        A. Jolicoeur-Martineau, "The relativistic discriminator", ICLR 2019, https://arxiv.org/abs/1807.00734; X. Wang
        et al., "ESRGAN", ECCVW 2018, https://arxiv.org/abs/1809.00219.
    """

    couples_judgements: ClassVar[bool] = True

    def _generator_term(self, output: Tensor, micro_batch: MicroBatch) -> Tensor:
        with torch.no_grad():
            real = self._judge(self._real(micro_batch)).float()
        made = self._judge(output).float()
        against = self._gan_loss(real - made.mean(), target_is_real=False)
        term: Tensor = (against + self._gan_loss(made - real.mean(), target_is_real=True)) / 2
        return term

    def _discriminator_terms(self, real: Tensor, made: Tensor) -> LossTerms:
        real, made = real.float(), made.float()
        by_real, by_made = real - made.detach().mean(), made - real.detach().mean()
        return {
            "l_d_real": self._gan_loss(by_real, target_is_real=True, is_disc=True) / 2,
            "l_d_fake": self._gan_loss(by_made, target_is_real=False, is_disc=True) / 2,
        }
