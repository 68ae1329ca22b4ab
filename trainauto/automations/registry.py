"""Registry of automations; its own module so that automation modules can import it without a cycle."""

from trainauto.automations.base import Automation
from trainauto.core.registry import Registry

AUTOMATIONS: Registry[type[Automation]] = Registry("automation")
