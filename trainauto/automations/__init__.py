"""What steers a run while it goes: automations by name."""

from trainauto.automations.dynamic_batch_size import DynamicBatchSizeOptimizer
from trainauto.automations.plan_schedule import PlanSchedule
from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.training_automations import TrainingAutomations
from trainauto.core.automation import Automation

__all__ = ["AUTOMATIONS", "Automation", "DynamicBatchSizeOptimizer", "PlanSchedule", "TrainingAutomations"]
