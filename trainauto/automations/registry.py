"""Registry of automations; its own module so that automation modules can import it without a cycle."""

from trainauto.core.automation import Automation
from trainauto.core.registry import Registry, in_one_word

AUTOMATIONS: Registry[type[Automation]] = Registry("automation", spelled=in_one_word)
