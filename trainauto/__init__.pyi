from trainauto.automations import DynamicBatchSizeOptimizer as DynamicBatchSizeOptimizer
from trainauto.automations import TrainingAutomations as TrainingAutomations
from trainauto.core.errors import InputError as InputError
from trainauto.core.errors import TrainautoError as TrainautoError
from trainauto.core.process import set_environment as set_environment
from trainauto.data.dynamic_loader import DynamicDataLoader as DynamicDataLoader
from trainauto.engine.loop import train as train
from trainauto.forecast.plan_request import PlanRequest as PlanRequest
from trainauto.integrations.adaptive_loop import AdaptiveLoop as AdaptiveLoop
from trainauto.integrations.loop_axes import Range as Range
from trainauto.integrations.loop_model import ModelObjective as ModelObjective
from trainauto.integrations.loop_step import LoopStep as LoopStep
from trainauto.memory.monitor.oom import is_out_of_memory as is_out_of_memory
from trainauto.scripting import build_run as build_run
from trainauto.scripting import load_options as load_options
from trainauto.scripting import plan as plan
from trainauto.storage.run_tables import read_records as read_records
from trainauto.tasks.text.dynamic_dataloader import build_dynamic_batch_dataloader as build_dynamic_batch_dataloader

__version__: str
