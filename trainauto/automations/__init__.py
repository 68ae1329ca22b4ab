"""What steers a run while it goes: automations by name."""

from trainauto.automations.base import Automation
from trainauto.automations.plan_schedule import PlanSchedule
from trainauto.automations.registry import AUTOMATIONS

__all__ = ["AUTOMATIONS", "Automation", "PlanSchedule"]
