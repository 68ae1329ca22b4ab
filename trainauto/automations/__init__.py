"""What steers a run while it goes: automations by name."""

from trainauto.automations.dynamic_batch_size import DynamicBatchSizeOptimizer
from trainauto.automations.early_stopping import IntelligentEarlyStopping
from trainauto.automations.gradient_clipping import AdaptiveGradientClipping
from trainauto.automations.learning_rate import IntelligentLearningRateScheduler
from trainauto.automations.low_loss import StopAtLowLoss
from trainauto.automations.plan_schedule import PlanSchedule
from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.spike_guard import SpikeGuard
from trainauto.automations.stop_file import StopFile
from trainauto.automations.training_automations import TrainingAutomations
from trainauto.core.automation import Automation

__all__ = [
    "AUTOMATIONS",
    "AdaptiveGradientClipping",
    "Automation",
    "DynamicBatchSizeOptimizer",
    "IntelligentEarlyStopping",
    "IntelligentLearningRateScheduler",
    "PlanSchedule",
    "SpikeGuard",
    "StopAtLowLoss",
    "StopFile",
    "TrainingAutomations",
]
